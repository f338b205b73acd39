package simulate

import (
	"fmt"
	"strconv"

	"github.com/gputap/gputap/schema"
)

// move says how the batch of one host and life differs from the life that all hosts replay. Sums wrap around.
type move struct {
	Time   schema.KTime // added to every KTime of the events and processes
	PID    uint32       // added to every process id and thread id, but not to Process.NSPID
	Handle uint64       // added to every address and handle from leastAddress on
	GPU    uint64       // added to the last 12 hexadecimal digits of every GPU's UUID
}

// leastAddress is the least number that is taken for an address or handle. Below it are 0
// (none) and the CUDA streams 1 and 2, which every process has.
const leastAddress = 1 << 16

// apply fills an empty Builder with a moved batch. Entries of dictionaries stay different, so they keep their indices.
func (m *move) apply(b *schema.Batch, to *schema.Builder) {
	for _, p := range b.Processes {
		p.PID += m.PID
		p.Start += m.Time
		to.Process(p)
	}
	for _, t := range b.Threads {
		t.TID += m.PID
		to.Thread(t)
	}
	for _, g := range b.GPUs {
		g.UUID = m.uuid(g.UUID)
		to.GPU(g)
	}
	for _, c := range b.Calls {
		to.Call(c)
	}
	for _, f := range b.Funcs {
		f.Handle = m.handle(f.Handle)
		to.Func(f)
	}
	for _, s := range b.Shapes {
		to.Shape(s)
	}
	for _, g := range b.Graphs {
		to.Graph(g)
	}
	for _, c := range b.Contexts {
		c.Handle = m.handle(c.Handle)
		to.Context(c)
	}
	for _, handle := range b.CUDAStreams {
		to.CUDAStream(m.handle(handle))
	}
	for _, s := range b.Stacks {
		to.Stack(s)
	}
	to.Libraries, to.Linux, to.Producer = b.Libraries, b.Linux, b.Producer
	m.events(b, to)
}

func (m *move) events(b *schema.Batch, to *schema.Builder) {
	for i := range b.Events {
		switch b.Kind {
		case schema.KindMemory:
			e := b.Memory(i)
			e.Time += m.Time
			e.Ptr, e.Pool = m.handle(e.Ptr), m.handle(e.Pool)
			switch b.Calls[e.Call].Op {
			case schema.OpExport, schema.OpOpen, schema.OpPoolCreate, schema.OpPoolInfo, schema.OpMemInfo:
				// a token, limit, attribute or total
			default:
				e.Aux = m.handle(e.Aux)
			}
			to.AddMemory(&e)
		case schema.KindLaunch:
			e := b.Launch(i)
			e.Time += m.Time
			to.AddLaunch(&e)
		case schema.KindCopy:
			e := b.Copy(i)
			e.Time += m.Time
			e.Dst, e.Src = m.handle(e.Dst), m.handle(e.Src)
			to.AddCopy(&e)
		case schema.KindSync:
			e := b.Sync(i)
			e.Time += m.Time
			e.CUDAEvent, e.Until = m.handle(e.CUDAEvent), m.handle(e.Until)
			to.AddSync(&e)
		}
	}
}

func (m *move) handle(v uint64) uint64 {
	if v < leastAddress {
		return v
	}
	return v + m.Handle
}

// uuid moves a UUID of the life, which ends with the number of the GPU in 12 hexadecimal digits.
func (m *move) uuid(of string) string {
	const digits = 12
	if len(of) < digits {
		return of // unknown
	}
	head, tail := of[:len(of)-digits], of[len(of)-digits:]
	n, _ := strconv.ParseUint(tail, 16, 64)
	return fmt.Sprintf("%s%012x", head, (n+m.GPU)&(1<<(4*digits)-1))
}
