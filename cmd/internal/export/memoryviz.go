package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

var memoryVizForm = form{
	name: "memory-viz", short: "A snapshot of one process for PyTorch's memory viewer, pytorch.org/memory_viz",
	long: `Segments are memory of the driver, blocks those of PyTorch's caching allocator: record with the feature torch.
The range must have one process: use --pid, --host and --cluster.
`,
	example: `  gputap export memory-viz run.gputap -o snapshot.pickle --pid 4242`,
	open: func(_ context.Context, o *options, _ *source.Source) (sink, error) {
		out, err := o.files.create(o.out)
		return &memoryViz{out: out, frameOf: map[frame]uint32{}, names: map[schema.ProcessID]string{}}, err
	},
}

// memoryViz collects the actions of one process.
type memoryViz struct {
	out     io.Writer
	actions []action
	maps    []mapping
	frames  []frame
	frameOf map[frame]uint32
	names   map[schema.ProcessID]string // of the processes

	arrays   uint64 // bytes of the places of CUDA arrays, from firstArray on
	overlaps uint64 // allocations in the place of live memory
}

// firstArray is the first address that is made up for a CUDA array, of which the driver only tells a handle. It is
// above all addresses of the driver, and below 2^53, up to which JavaScript has all numbers.
const firstArray = 1 << 52

// verb is what an action does. At equal times, actions come in this order.
type verb uint8

const (
	segmentAlloc verb = iota
	blockFree
	blockAlloc
	segmentFree
)

// action is a change of the memory of a device.
type action struct {
	at     int64 // ns since 1970
	addr   uint64
	bytes  uint64
	stream uint64 // handle of the CUDA stream of a segment; 0: the default one, or unknown
	frame  uint32
	device uint16
	verb   verb
	known  bool // the memory was live before the range
	vmm    bool // addr is a handle
}

// frame is the place of a call. The viewer shows it as a stack.
type frame struct {
	thread string
	tid    uint32
	symbol string
	stack  string // of the program, innermost first, each function with a line feed behind it; "": unknown
}

// mapping is where physical memory is first mapped.
type mapping struct {
	at           int64
	handle, addr uint64
}

func (v *memoryViz) frame(f frame) uint32 {
	i, known := v.frameOf[f]
	if !known {
		i = uint32(len(v.frames))
		v.frames, v.frameOf[f] = append(v.frames, f), i
	}
	return i
}

func stackOf(s *schema.Stack) string {
	if s == nil || len(s.Frames) == 0 {
		return ""
	}
	return strings.Join(s.Frames, "\n") + "\n"
}

func (v *memoryViz) receiver() func(*leak.Movement) {
	type segment struct{ allocated, device int }
	live := map[uint32]segment{}
	return func(m *leak.Movement) {
		a := action{at: int64(m.At) + m.Offset, addr: m.Ptr, bytes: m.Bytes, stream: m.CUDAStream, verb: segmentFree,
			device: uint16(max(m.GPUNo, 0)), vmm: m.Class == schema.ClassVMM,
			frame: v.frame(frame{m.Thread, m.TID, m.Symbol, stackOf(m.Stack)})}
		switch m.Cause {
		case leak.Allocated, leak.Known:
			if !m.Class.OnGPU() {
				return
			}
			a.verb, a.known = segmentAlloc, m.Cause == leak.Known
			if m.Class == schema.ClassArray {
				a.addr = firstArray + v.arrays
				v.arrays += (m.Bytes + 512) &^ 511
			}
			live[m.Slot] = segment{len(v.actions), int(a.device)}
			v.names[m.Info.ID] = m.Info.Comm
		case leak.Unfreed: // stays in the snapshot, as the process left it
			delete(live, m.Slot)
			return
		default:
			s, has := live[m.Slot]
			if !has {
				return
			}
			delete(live, m.Slot)
			allocated := &v.actions[s.allocated]
			a.addr, a.device, a.at = allocated.addr, uint16(s.device), max(a.at, allocated.at)
		}
		v.actions = append(v.actions, a)
	}
}

func (v *memoryViz) event(b *schema.Batch, i int) error {
	switch b.Kind {
	case schema.KindMemory:
		if opOf(b, i) == schema.OpMap && b.Result().At(i) == 0 {
			m := b.Memory(i)
			v.maps = append(v.maps, mapping{b.Wall(m.Time).UnixNano(), m.Aux, m.Ptr})
		}
	case schema.KindTensor:
		e := b.Tensor(i)
		thread := &b.Threads[e.Thread]
		p := &b.Processes[thread.Process]
		v.names[b.ID(p)] = p.Comm
		a := action{at: b.Wall(e.Time).UnixNano(), addr: e.Ptr, bytes: e.Bytes, verb: blockAlloc,
			frame: v.frame(frame{thread.Comm, thread.TID, b.Calls[e.Call].Symbol, ""})}
		if e.GPU > 0 {
			a.device = uint16(b.GPUs[e.GPU-1].Ordinal)
		}
		if opOf(b, i) == schema.OpBlockFree {
			a.verb = blockFree
		}
		v.actions = append(v.actions, a)
	}
	return nil
}

func (v *memoryViz) finish() error {
	if len(v.names) == 0 {
		return errors.New("memory-viz shows one process, and none is in the range or selected")
	}
	if len(v.names) > 1 {
		var names []string
		for id, comm := range v.names {
			names = append(names, fmt.Sprintf("%s/%d %s", id.Host, id.PID, comm))
		}
		slices.Sort(names)
		return app.Usage(fmt.Errorf("memory-viz shows one process, and %d are selected: %s; use --pid, "+
			"--host and --cluster",
			len(names), app.Shorten(strings.Join(names, ", "), 200)))
	}
	v.resolve()
	slices.SortStableFunc(v.actions, func(a, b action) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.at, b.at), cmp.Compare(a.verb, b.verb))
	})
	return v.write()
}

// missing says which live memory the snapshot frees although no event does.
func (v *memoryViz) missing() []string {
	if v.overlaps == 0 {
		return nil
	}
	return []string{app.Plural(v.overlaps, "allocation overlaps", "allocations overlap") +
		" live memory, which the snapshot frees there without an event"}
}

// resolve replaces handles of physical memory by the address where it was first mapped. Memory without a mapping keeps
// its handle.
func (v *memoryViz) resolve() {
	slices.SortStableFunc(v.maps, func(a, b mapping) int {
		return cmp.Or(cmp.Compare(a.handle, b.handle), cmp.Compare(a.at, b.at))
	})
	created := map[uint64]int64{} // when the memory of a handle was made
	for i := range v.actions {
		a := &v.actions[i]
		if !a.vmm {
			continue
		}
		if a.verb == segmentAlloc {
			created[a.addr] = a.at
		}
		at, found := slices.BinarySearchFunc(v.maps, mapping{created[a.addr], a.addr, 0}, func(m, of mapping) int {
			return cmp.Or(cmp.Compare(m.handle, of.handle), cmp.Compare(m.at, of.at))
		})
		if found || at < len(v.maps) && v.maps[at].handle == a.addr {
			a.addr = v.maps[at].addr
		}
	}
}
