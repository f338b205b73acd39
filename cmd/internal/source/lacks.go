package source

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/schema"
)

// tables are the optional tables of an Nsight export from which the events of a kind come.
var tables = map[schema.Kind][]string{
	schema.KindMemory: {"CUDA_GPU_MEMORY_USAGE_EVENTS"},
	schema.KindLaunch: {"CUPTI_ACTIVITY_KIND_KERNEL"},
	schema.KindCopy:   {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"},
}

// details are the optional tables that tell more of the events of a kind. Figures do not depend on them, as long as the
// numbers of the enumerations are those of the versions that gputap knows.
var details = map[schema.Kind][]string{
	schema.KindMemory: {"CUPTI_ACTIVITY_KIND_RUNTIME", "CUDA_CALLCHAINS", "ENUM_CUDA_MEM_KIND",
		"ENUM_CUDA_DEV_MEM_EVENT_OPER"},
	schema.KindCopy: {"ENUM_CUDA_MEM_KIND", "ENUM_CUDA_MEMCPY_OPER"},
}

const sessionTable = "TARGET_INFO_SESSION_START_TIME"

func noTable(name string) string { return "the export has no table " + name }

// Notes returns sentences about what an Nsight export lacks of some kinds of events; none: of all. Answers are complete
// without it. It never returns nil.
func (s *Source) Notes(kinds ...schema.Kind) []string {
	texts := []string{}
	if s.Nsight == nil {
		return texts
	}
	if len(kinds) == 0 {
		kinds = []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy}
	}
	noStart := "the export does not tell when its session began"
	for _, m := range s.Nsight.Missing {
		asked := slices.ContainsFunc(kinds, func(k schema.Kind) bool {
			return slices.Contains(details[k], m.Name) || m.Omitted && slices.Contains(tables[k], m.Name)
		})
		switch {
		case m.Name == sessionTable:
			noStart = noTable(m.Name)
		case asked:
			texts = append(texts, noTable(m.Name)+": "+m.Effect)
		}
	}
	if !s.HasWallTime() {
		texts = append(texts, noStart+": times count from the start of the session, shown as 1970-01-01 00:00:00 UTC")
	}
	return texts
}

// HasWallTime reports whether times are those of a clock. Those of an Nsight export may only count from 1970.
func (s *Source) HasWallTime() bool { return s.Nsight == nil || !s.Nsight.Session.IsZero() }

// addFindings adds what the conversion of an Nsight export counted.
func (s *Source) addFindings(f *Findings) {
	if s.Nsight == nil {
		return
	}
	f.SizeMismatches, f.ImpossibleSizes = s.Nsight.SizeMismatches, s.Nsight.ImpossibleSize
	for _, u := range s.Nsight.UnknownKinds {
		f.UnknownKinds += u.Events
	}
}

// unknownKinds returns sentences about memory events of unknown kinds.
func (s *Source) unknownKinds() (texts []string) {
	if s.Nsight == nil {
		return nil
	}
	for _, u := range s.Nsight.UnknownKinds {
		kind := "no kind of memory"
		if u.Kind != "" {
			kind = fmt.Sprintf("the unknown kind of memory %q", app.Shorten(u.Kind, 40))
		}
		texts = append(texts, fmt.Sprintf("%s %s, with %s of allocations: they count as neither GPU nor host memory",
			app.Plural(u.Events, "memory event has", "memory events have"), kind, app.Bytes(u.Allocated)))
	}
	if s.Nsight.NoKinds != "" {
		texts = append(texts, noTable(s.Nsight.NoKinds)+", which names the kinds of memory")
	}
	return texts
}

// unusedRows returns sentences about rows of an Nsight export that the conversion left out.
func (s *Source) unusedRows() (texts []string) {
	if s.Nsight == nil {
		return nil
	}
	if n := s.Nsight.Malformed; n > 0 {
		text := app.Plural(n, "row of the export", "rows of the export") + " cannot be used"
		if ops := s.Nsight.UnknownOps; ops > 0 {
			text += fmt.Sprintf(", %d for an unknown memory operation", ops)
		}
		texts = append(texts, text)
	}
	if s.Nsight.NoOps != "" {
		texts = append(texts, noTable(s.Nsight.NoOps)+", which names the memory operations")
	}
	if n := s.Nsight.ImpossibleSize; n > 0 {
		texts = append(texts, app.Plural(n, "row of the export has", "rows of the export have")+" an impossible size")
	}
	return texts
}
