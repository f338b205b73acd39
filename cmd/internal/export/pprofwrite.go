package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// profileWriter makes a profile. Equal frames are one location.
type profileWriter struct {
	profile.Profile
	locations map[string]*profile.Location
	modules   map[string]*profile.Mapping
}

func newProfileWriter(first, last int64) *profileWriter {
	w := &profileWriter{locations: map[string]*profile.Location{}, modules: map[string]*profile.Mapping{}}
	bytes, count := "bytes", "count"
	w.SampleType = []*profile.ValueType{
		{Type: "alloc_objects", Unit: count}, {Type: "alloc_space", Unit: bytes},
		{Type: "inuse_objects", Unit: count}, {Type: "inuse_space", Unit: bytes},
	}
	w.DefaultSampleType, w.TimeNanos, w.DurationNanos = "inuse_space", last, last-first
	w.PeriodType, w.Period = &profile.ValueType{Type: "space", Unit: bytes}, 1
	w.module("gputap") // the first mapping names the profile
	return w
}

// add adds a sample. Its locations are the innermost first.
func (w *profileWriter) add(key *sampleKey, s *sample) {
	var stack []*profile.Location
	for frame := range strings.Lines(key.stack) {
		stack = append(stack, w.location(splitFrame(strings.TrimSuffix(frame, "\n"))))
	}
	if len(stack) == 0 {
		stack = append(stack, w.location(cmp.Or(key.function, "unknown call"), ""))
	}
	for _, name := range []string{
		fmt.Sprintf("%s (thread %d)", cmp.Or(key.threadName, "unknown"), key.tid), key.class.String() + " memory",
		key.gpu, fmt.Sprintf("%s (%d)", cmp.Or(key.comm, "process"), key.process.PID), key.process.Host,
	} {
		stack = append(stack, w.location(name, ""))
	}
	w.Sample = append(w.Sample, &profile.Sample{
		Location: stack, Value: []int64{s.allocObjects, s.allocSpace, s.inuseObjects, s.inuseSpace},
		Label: labels("host", key.process.Host, "gpu", key.gpu, "class", key.class.String(), "thread", key.threadName,
			"job", key.job, "call", key.function, "variable", key.variable),
		NumLabel: map[string][]int64{"pid": {int64(key.process.PID)}},
	})
}

// labels returns the pairs of names and values whose value is known.
func labels(pairs ...string) map[string][]string {
	known := map[string][]string{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			known[pair[0]] = pair[1:]
		}
	}
	return known
}

// splitFrame returns the function of a frame, and its module, which follows in parentheses; "": it is unknown.
func splitFrame(text string) (function, module string) {
	if i := strings.LastIndex(text, " ("); i > 0 && strings.HasSuffix(text, ")") {
		// A name such as "f (anonymous namespace)::g()" has more parentheses and no module.
		if inner := text[i+2 : len(text)-1]; inner != "" && !strings.ContainsAny(inner, "()") {
			return text[:i], inner
		}
	}
	return text, ""
}

// location returns the location of a function of a module; "": none is known.
func (w *profileWriter) location(name, module string) *profile.Location {
	key := module + "\n" + name
	l := w.locations[key]
	if l == nil {
		id := uint64(len(w.locations) + 1)
		f := &profile.Function{ID: id, Name: name, SystemName: name}
		l = &profile.Location{ID: id, Mapping: w.module(cmp.Or(module, "gputap")), Address: id,
			Line: []profile.Line{{Function: f}}}
		w.locations[key], w.Function, w.Location = l, append(w.Function, f), append(w.Location, l)
	}
	return l
}

// module returns the mapping of a module. pprof must not look for the file: the names are known.
func (w *profileWriter) module(name string) *profile.Mapping {
	m := w.modules[name]
	if m == nil {
		m = &profile.Mapping{ID: uint64(len(w.modules) + 1), File: name, HasFunctions: true}
		w.modules[name], w.Mapping = m, append(w.Mapping, m)
	}
	return m
}
