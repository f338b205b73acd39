package export

import (
	"fmt"
	"slices"
	"strconv"
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
	args    lifetimeArgs
}

type lifetimeArgs struct {
	Address   string `json:"address"`
	Bytes     uint64 `json:"bytes"`
	Class     string `json:"class"`
	GPU       string `json:"gpu"`
	TID       uint32 `json:"tid"`
	Thread    string `json:"thread"`
	Symbol    string `json:"symbol"`
	Allocated string `json:"allocated,omitempty"` // time, if it is before the trace
}

// endArgs says why a lifetime ends.
type endArgs struct {
	End string `json:"end"` // freed, unfreed: with its process, or live: with the trace
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
	l.args = lifetimeArgs{fmt.Sprintf("%#x", m.Ptr), m.Bytes, m.Class.String(), gpuName(m.GPU, m.GPUNo), m.TID,
		m.Thread, m.Symbol, ""}
	if at < t.first {
		l.args.Allocated = time.Unix(0, at).UTC().Format(time.RFC3339Nano)
	}
	return l
}

// writeLifetime writes both ends of an asynchronous slice.
func (t *trace) writeLifetime(l *lifetime, end int64, how string) {
	t.ids++
	t.last = max(t.last, end)
	e := traceEvent{Phase: "b", Name: l.class.String() + " memory", Category: "allocation", PID: l.process.pid,
		ID: "0x" + strconv.FormatUint(t.ids, 16), At: t.since(l.begin), Args: &l.args}
	err := t.write(&e)
	if err == nil {
		e.Phase, e.At, e.Args = "e", t.since(max(l.begin, end)), endArgs{how}
		err = t.write(&e)
	}
	if t.err == nil {
		t.err = err
	}
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

type bytesArgs struct {
	Bytes uint64 `json:"bytes"`
}

// counters writes the live bytes of a process on each GPU, in total and by class.
func (t *trace) counters(p *analysis.Process) error {
	for gpu := range p.GPUs {
		name := "GPU memory on " + gpuName(p.GPUs[gpu].UUID, p.GPUs[gpu].Ordinal)
		if err := t.counter(p, name, analysis.OnGPU(gpu)); err != nil {
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
			if err := t.counter(p, name+", "+class.String(), of); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *trace) counter(p *analysis.Process, name string, keep func(*analysis.Group) bool) (err error) {
	e := traceEvent{Phase: "C", Name: name, PID: t.process(p.ID, p.Comm, p.Job).pid}
	var last uint64
	write := func(at time.Time, bytes uint64) bool {
		e.At, e.Args, last = t.since(at.UnixNano()), bytesArgs{bytes}, bytes
		err = t.write(&e)
		return err == nil
	}
	if failed := p.Usage(keep, write); failed != nil {
		return failed
	}
	if ended := p.Ended(); err == nil && last > 0 && !ended.IsZero() {
		write(ended, 0) // the memory ended with its process
	}
	return err
}
