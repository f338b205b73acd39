package source

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Unrecorded returns sentences about those of the kinds that the source does not have.
func (s *Source) Unrecorded(kinds ...schema.Kind) (texts []string) {
	for _, kind := range kinds {
		switch {
		case s.Nsight != nil:
			for _, m := range s.Nsight.Missing {
				if slices.Contains(tables[kind], m.Name) && !m.Omitted {
					texts = append(texts, noTable(m.Name)+": "+m.Effect)
				}
			}
		case len(s.Streams) > 0 && !s.Recorded(kind):
			texts = append(texts, fmt.Sprintf("no events of the kind %s are recorded: use the feature %s", kind, kind))
		}
	}
	return texts
}

// Recorded reports whether a recording has a kind: its selection names the kind, or selects all kinds and there is a
// message of it. The state at the beginning counts as memory.
func (s *Source) Recorded(kind schema.Kind) bool {
	if len(s.Selection.Kinds) > 0 {
		return slices.Contains(s.Selection.Kinds, kind)
	}
	for _, err := range s.Messages(recording.Filter{Selection: recording.Selection{Kinds: []schema.Kind{kind}}}) {
		return err == nil
	}
	if kind == schema.KindMemory {
		for section, err := range s.State() {
			if err == nil && section.Fold == "leak" && section.Host != "" {
				return true
			}
		}
	}
	return false
}
