package export

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

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
