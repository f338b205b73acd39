package source

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// tables are the optional tables of an Nsight export from which the events of a kind come.
var tables = map[schema.Kind][]string{
	schema.KindMemory: {"CUDA_GPU_MEMORY_USAGE_EVENTS"},
	schema.KindLaunch: {"CUPTI_ACTIVITY_KIND_KERNEL"},
	schema.KindCopy:   {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"},
}

// details are the optional tables that name the calls and their places. Figures do not depend on them.
var details = []string{"CUPTI_ACTIVITY_KIND_RUNTIME", "CUDA_CALLCHAINS"}

// notes returns sentences about the details that an export lacks.
func (s *Source) notes() (texts []string) {
	if s.Nsight == nil {
		return nil
	}
	for _, m := range s.Nsight.Missing {
		if slices.Contains(details, m.Name) {
			texts = append(texts, fmt.Sprintf("the export has no table %s: %s", m.Name, m.Effect))
		}
	}
	return texts
}

// Unrecorded returns sentences about those of the kinds that the source does not have.
func (s *Source) Unrecorded(kinds ...schema.Kind) (texts []string) {
	for _, kind := range kinds {
		switch {
		case s.Nsight != nil:
			for _, m := range s.Nsight.Missing {
				if slices.Contains(tables[kind], m.Name) {
					texts = append(texts, fmt.Sprintf("the export has no table %s: %s", m.Name, m.Effect))
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
