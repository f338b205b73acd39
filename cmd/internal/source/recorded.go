package source

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/cmd/internal/record"
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
		case len(s.Streams) > 0 && !s.Recorded(kind) && !s.Empty():
			texts = append(texts, fmt.Sprintf("no events of the kind %s are recorded: use the feature %s", kind, kind))
		}
	}
	return texts
}

// Empty reports whether a file has no message and no host in the state at its beginning, and is not damaged.
func (s *Source) Empty() bool {
	if s.ofBus || s.Nsight != nil {
		return false
	}
	for range s.Messages(recording.Filter{}) {
		return false
	}
	return !s.hasHost() && len(s.Damages) == 0
}

// emptyText says what an empty recording selected.
func (s *Source) emptyText() string {
	if text := record.SelectionText(&s.Selection); len(s.Streams) > 0 && text != "everything" {
		return "the recording is empty: no message matched its selection (" + text + ")"
	}
	return "the recording is empty"
}

// hasHost reports whether the state at the beginning has a host.
func (s *Source) hasHost() bool {
	for section, err := range s.State() {
		if err == nil && section.Fold == "leak" && section.Host != "" {
			return true
		}
	}
	return false
}

// Chosen reports whether the user selected a kind for a recording. A command selects the kinds of a range of a bus.
func (s *Source) Chosen(kind schema.Kind) bool {
	return !s.ofBus && slices.Contains(s.Selection.Kinds, kind)
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
	return kind == schema.KindMemory && s.hasHost()
}
