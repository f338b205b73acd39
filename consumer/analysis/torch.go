package analysis

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Names of the groups that TorchReceiver makes. Their sum is the reserved memory.
const (
	Tensors = "tensors" // blocks that the program holds
	Cached  = "cached"  // reserved memory without such a block
)

// torchLevel is what PyTorch's allocator of a process holds on one GPU.
type torchLevel struct {
	process *Process
	groups  [2]uint32
	bytes   [2]uint64 // tensors, cached
}

type torchKey struct {
	process *Process
	gpu     int // index into its GPUs
}

// torchReceiver turns the totals of tensor events into changes.
type torchReceiver struct {
	journal *Journal
	levels  map[torchKey]*torchLevel
}

// TorchReceiver returns a function that takes batches and adds what PyTorch's caching allocator holds: Tensors and
// Cached of each process and GPU, from the first event on. It ignores other kinds. Use a Journal of its own: what
// PyTorch reserves is memory of the driver, too.
func (j *Journal) TorchReceiver() func(*schema.Batch) {
	return (&torchReceiver{j, map[torchKey]*torchLevel{}}).add
}

func (r *torchReceiver) add(b *schema.Batch) {
	if b.Kind != schema.KindTensor {
		return
	}
	var l *torchLevel
	thread, gpu := ^uint32(0), ^uint32(0) // of l
	for i := range b.Events {
		e := b.Tensor(i)
		if e.Thread != thread || e.GPU != gpu {
			thread, gpu, l = e.Thread, e.GPU, r.level(b, e.Thread, e.GPU)
		}
		l.set(e.Time, e.Allocated, max(e.Reserved, e.Allocated)-e.Allocated)
	}
}

// set adds the changes to new levels. The one that falls comes first, so that their sum never exceeds
// the reserved memory.
func (l *torchLevel) set(at schema.KTime, tensors, cached uint64) {
	if tensors < l.bytes[0] {
		l.change(0, at, tensors)
		l.change(1, at, cached)
		return
	}
	l.change(1, at, cached)
	l.change(0, at, tensors)
}

func (l *torchLevel) change(i int, at schema.KTime, bytes uint64) {
	before := l.bytes[i]
	l.bytes[i] = bytes
	c := change{at: at, bytes: bytes - before, group: l.groups[i]}
	switch {
	case bytes == before:
		return
	case bytes < before:
		c.bytes, c.group = before-bytes, c.group|freed
	}
	l.process.changes++
	c.id = l.process.changes
	l.process.journal.add(l.process, c)
}

func (r *torchReceiver) level(b *schema.Batch, thread, gpu uint32) *torchLevel {
	p := r.process(b, &b.Processes[b.Threads[thread].Process])
	uuid, ordinal := "", int32(-1)
	if gpu > 0 {
		uuid, ordinal = b.GPUs[gpu-1].UUID, int32(b.GPUs[gpu-1].Ordinal)
	}
	key := torchKey{p, p.gpu(uuid, ordinal)}
	l := r.levels[key]
	if l == nil {
		l = &torchLevel{process: p}
		for i, name := range []string{Tensors, Cached} {
			l.groups[i] = uint32(len(p.Groups))
			p.Groups = append(p.Groups, Group{GPU: key.gpu, Name: name})
		}
		r.levels[key] = l
	}
	return l
}

func (r *torchReceiver) process(b *schema.Batch, row *schema.Process) *Process {
	id := b.ID(row)
	p := r.journal.byID[id]
	if p == nil {
		p = &Process{journal: r.journal}
		r.journal.byID[id] = p
		r.journal.processes = append(r.journal.processes, p)
	}
	p.info, p.offset = new(process.NewInfo(b, row)), b.ClockOffset
	return p
}
