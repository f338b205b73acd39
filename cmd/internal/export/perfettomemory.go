package export

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// lifetime is memory that is live.
type lifetime struct {
	process *processTrack
	begin   int64
	class   schema.MemClass
	args    args
}

// lifetimes returns a receiver that draws lifetimes and passes the movements on.
func (t *trace) lifetimes(next func(*leak.Movement)) func(*leak.Movement) {
	live := map[uint32]*lifetime{}
	t.live = append(t.live, live)
	return func(m *leak.Movement) {
		next(m)
		at := int64(m.At) + m.Offset
		if m.Cause == leak.Allocated || m.Cause == leak.Known {
			if m.Bytes >= t.minBytes && (m.Class.OnGPU() || m.Class.OnHost()) {
				live[m.Slot] = t.lifetime(m, at)
			}
			return
		}
		l := live[m.Slot]
		if l == nil {
			return
		}
		delete(live, m.Slot)
		end := "freed"
		if m.Cause != leak.Freed {
			end = "unfreed"
		}
		t.writeLifetime(l, at, end)
	}
}

func (t *trace) lifetime(m *leak.Movement, at int64) *lifetime {
	l := &lifetime{process: t.process(m.Info.ID, m.Info.Comm, m.Info.Job), begin: at, class: m.Class}
	l.args.text("address", fmt.Sprintf("%#x", m.Ptr))
	l.args.number("bytes", m.Bytes)
	l.args.text("class", m.Class.String())
	l.args.text("gpu", gpuName(m.GPU, m.GPUNo))
	l.args.number("tid", uint64(m.TID))
	l.args.text("thread", m.Thread)
	l.args.text("symbol", m.Symbol)
	if m.Stack != nil {
		l.args.text("stack", strings.Join(m.Stack.Frames, " < "))
		l.args.text("variable", m.Stack.Name)
	}
	if at < t.first {
		l.args.text("allocated", time.Unix(0, at).UTC().Format(time.RFC3339Nano))
	}
	return l
}

// writeLifetime writes a lifetime. end is freed, unfreed if it ends with its process, or live if it ends with the
// trace.
func (t *trace) writeLifetime(l *lifetime, at int64, end string) {
	t.last = max(t.last, at)
	begin := max(l.begin, t.first)
	at = max(begin, at)
	var ended args
	ended.text("end", end)
	_ = t.slice(&traceEvent{track: t.lane(l.process, l.class, begin, at), at: begin, name: l.class.String() + " memory",
		category: "allocation", args: l.args}, at-begin, ended) // the writer keeps the error
}

// endLifetimes ends those that are live at the end of the trace.
func (t *trace) endLifetimes() error {
	for _, live := range t.live {
		for _, l := range live {
			t.last = max(t.last, l.begin)
		}
	}
	for _, live := range t.live {
		slots := make([]uint32, 0, len(live))
		for slot := range live {
			slots = append(slots, slot)
		}
		slices.Sort(slots) // equal recordings give equal traces
		for _, slot := range slots {
			t.writeLifetime(live[slot], t.last, "live")
		}
	}
	return t.err
}

// usage writes the live bytes of a process on each GPU, in total and by class.
func (t *trace) usage(p *analysis.Process) error {
	for gpu := range p.GPUs {
		name := "GPU memory on " + gpuName(p.GPUs[gpu].UUID, p.GPUs[gpu].Ordinal)
		if err := t.points(p, name, analysis.OnGPU(gpu)); err != nil {
			return err
		}
		var classes []schema.MemClass
		for _, g := range p.Groups {
			if g.GPU == gpu && !slices.Contains(classes, g.Class) {
				classes = append(classes, g.Class)
			}
		}
		for _, class := range classes {
			of := func(g *analysis.Group) bool { return g.GPU == gpu && g.Class == class }
			if err := t.points(p, name+", "+class.String(), of); err != nil {
				return err
			}
		}
	}
	return nil
}

// points writes the changes of groups of memory.
func (t *trace) points(p *analysis.Process, name string, keep func(*analysis.Group) bool) (err error) {
	track := t.bytesOf(t.process(p.ID, p.Comm, p.Job), name)
	var last uint64
	write := func(at time.Time, bytes uint64) bool {
		last = bytes
		err = t.counter(track, at.UnixNano(), bytes)
		return err == nil
	}
	if failed := p.Usage(keep, write); failed != nil {
		return failed
	}
	if ended := p.Ended(); err == nil && last > 0 && !ended.IsZero() {
		err = t.counter(track, ended.UnixNano(), 0) // the memory ended with its process
	}
	return err
}
