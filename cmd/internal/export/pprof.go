package export

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

var pprofForm = form{
	name: "pprof", short: "GPU memory by process, GPU, class, thread and call, for go tool pprof",
	long: `alloc_space and alloc_objects count what was allocated in the range; inuse_space and inuse_objects what was live at
its end, or when the process ended. The stack of a sample is host, process, GPU, class, thread and call. Where the
source has call stacks, their functions replace the call.
`,
	example: `  gputap export pprof run.gputap -o memory.pb.gz && go tool pprof -http : memory.pb.gz
  gputap export pprof run.gputap -o memory.pb.gz --until 2026-01-02T15:04:05Z   # what was live then`,
	open: func(_ context.Context, o *options, _ *source.Source) (sink, error) {
		out, err := o.files.create(o.out)
		return &memoryProfile{out: out, samples: map[sampleKey]*sample{}, stacks: map[string]string{}}, err
	},
}

// memoryProfile sums up the memory of groups of allocations.
type memoryProfile struct {
	out         io.Writer
	samples     map[sampleKey]*sample
	stacks      map[string]string // equal texts share their memory
	text        []byte            // reused
	first, last int64             // times of the events, ns since 1970
}

// sampleKey is allocations of one place.
type sampleKey struct {
	process              schema.ProcessID
	gpu                  string
	class                schema.MemClass
	tid                  uint32
	comm, job            string
	threadName, function string
	stack                string // frames, innermost first, each with a line feed behind it; "": unknown
	variable             string
}

type sample struct {
	allocSpace, allocObjects, inuseSpace, inuseObjects int64
}

// receiver remembers the sample of live memory: its GPU may get its UUID after the allocation.
func (p *memoryProfile) receiver() func(*leak.Movement) {
	type allocation struct {
		of    *sample
		bytes int64
	}
	live := map[uint32]allocation{}
	return func(m *leak.Movement) {
		switch m.Cause {
		case leak.Allocated, leak.Known:
			if !m.Class.OnGPU() {
				return
			}
			a := allocation{p.sample(m), int64(m.Bytes)}
			live[m.Slot] = a
			a.of.inuseSpace += a.bytes
			a.of.inuseObjects++
			if m.Cause == leak.Allocated {
				a.of.allocSpace += a.bytes
				a.of.allocObjects++
			}
		case leak.Freed, leak.Replaced:
			if a, has := live[m.Slot]; has {
				a.of.inuseSpace -= a.bytes
				a.of.inuseObjects--
			}
			delete(live, m.Slot)
		default: // unfreed stays in use
			delete(live, m.Slot)
		}
	}
}

func (p *memoryProfile) sample(m *leak.Movement) *sample {
	key := sampleKey{m.Info.ID, gpuName(m.GPU, m.GPUNo), m.Class, m.TID, m.Info.Comm, m.Info.Job, m.Thread, m.Symbol,
		"", ""}
	if m.Stack != nil {
		key.stack, key.variable = p.stack(m.Stack.Frames), m.Stack.Name
	}
	s := p.samples[key]
	if s == nil {
		s = &sample{}
		p.samples[key] = s
	}
	return s
}

// stack returns the frames as one text. Equal stacks share it.
func (p *memoryProfile) stack(frames []string) string {
	p.text = p.text[:0]
	for _, frame := range frames {
		p.text = append(append(p.text, frame...), '\n')
	}
	text, known := p.stacks[string(p.text)]
	if !known {
		text = string(p.text)
		p.stacks[text] = text
	}
	return text
}

func (p *memoryProfile) event(b *schema.Batch, i int) error {
	at := b.Wall(schema.KTime(b.Time().At(i))).UnixNano()
	if p.first == 0 || at < p.first {
		p.first = at
	}
	p.last = max(p.last, at)
	return nil
}

func (p *memoryProfile) finish() error {
	w := newProfileWriter(p.first, p.last)
	keys := make([]sampleKey, 0, len(p.samples))
	for key := range p.samples {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b sampleKey) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, key := range keys {
		w.add(&key, p.samples[key])
	}
	if err := w.CheckValid(); err != nil {
		return err
	}
	return w.Write(p.out)
}

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
