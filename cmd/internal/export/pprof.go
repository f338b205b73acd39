package export

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

var pprofForm = form{
	name: "pprof", short: "GPU memory by process, GPU, class, thread and call, for go tool pprof",
	long: `alloc_space and alloc_objects count what was allocated in the range; inuse_space and inuse_objects what was live at
its end, or when the process ended. The stack of a sample is host, process, GPU, class, thread and call.
`,
	example: `  gputap export pprof run.gputap -o memory.pb.gz && go tool pprof -http : memory.pb.gz
  gputap export pprof run.gputap -o memory.pb.gz --until 2026-01-02T15:04:05Z   # what was live then`,
	open: func(o *options, _ *source.Source) (sink, error) {
		out, err := o.files.create(o.out)
		return &memoryProfile{out: out, samples: map[sampleKey]*sample{}}, err
	},
}

// memoryProfile sums up the memory of groups of allocations.
type memoryProfile struct {
	out         io.Writer
	samples     map[sampleKey]*sample
	first, last int64 // times of the events, ns since 1970
}

// sampleKey is allocations of one place.
type sampleKey struct {
	process              schema.ProcessID
	gpu                  string
	class                schema.MemClass
	tid                  uint32
	comm, job            string
	threadName, function string
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
	key := sampleKey{m.Info.ID, gpuName(m.GPU, m.GPUNo), m.Class, m.TID, m.Info.Comm, m.Info.Job, m.Thread, m.Symbol}
	s := p.samples[key]
	if s == nil {
		s = &sample{}
		p.samples[key] = s
	}
	return s
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
	bytes, count := "bytes", "count"
	w := profileWriter{
		Profile: profile.Profile{
			SampleType: []*profile.ValueType{
				{Type: "alloc_objects", Unit: count}, {Type: "alloc_space", Unit: bytes},
				{Type: "inuse_objects", Unit: count}, {Type: "inuse_space", Unit: bytes},
			},
			DefaultSampleType: "inuse_space", TimeNanos: p.last, DurationNanos: p.last - p.first,
			PeriodType: &profile.ValueType{Type: "space", Unit: bytes}, Period: 1,
			Mapping: []*profile.Mapping{{ID: 1, File: "gputap", HasFunctions: true}},
		},
		locations: map[string]*profile.Location{},
	}
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

// profileWriter makes a profile. Equal names are one location.
type profileWriter struct {
	profile.Profile
	locations map[string]*profile.Location
}

func (w *profileWriter) add(key *sampleKey, s *sample) {
	thread := fmt.Sprintf("%s (thread %d)", cmp.Or(key.threadName, "unknown"), key.tid)
	w.Sample = append(w.Sample, &profile.Sample{
		Location: []*profile.Location{ // the innermost first
			w.location(key.function), w.location(thread), w.location(key.class.String() + " memory"),
			w.location(key.gpu), w.location(fmt.Sprintf("%s (%d)", key.comm, key.process.PID)),
			w.location(key.process.Host),
		},
		Value: []int64{s.allocObjects, s.allocSpace, s.inuseObjects, s.inuseSpace},
		Label: labels("host", key.process.Host, "gpu", key.gpu, "class", key.class.String(), "thread", key.threadName,
			"job", key.job),
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

func (w *profileWriter) location(name string) *profile.Location {
	l := w.locations[name]
	if l == nil {
		id := uint64(len(w.locations) + 1)
		f := &profile.Function{ID: id, Name: name, SystemName: name}
		l = &profile.Location{ID: id, Mapping: w.Mapping[0], Address: id, Line: []profile.Line{{Function: f}}}
		w.locations[name], w.Function, w.Location = l, append(w.Function, f), append(w.Location, l)
	}
	return l
}
