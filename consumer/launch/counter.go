package launch

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// maxCells limits the table of one batch to 8 MiB. A batch closes at 4,096 events of a few processes with a few
// hundred shapes; larger products are counted in a map.
const maxCells = 1 << 20

// group is one process on one GPU of a batch.
type group struct {
	entry *process.Entry[state]
	gpu   int // 0: unknown; otherwise 1 + index into Batch.GPUs
}

// counter counts the events of one batch by group and launch shape. It needs two column reads and one increment per
// event and reuses its memory.
type counter struct {
	entries []*process.Entry[state] // by index of process; nil for a process without threads
	threads []uint64
	shapes  []uint64
	gpus    []uint64
	base    []int // by thread: where the counts of its process begin
	counts  []uint64

	sparse map[cell]uint64 // used instead of counts if the table would be too large
	order  []cell          // keys of sparse in order of first use
}

type cell struct {
	group group
	shape int
}

// load expands the columns. entries are the entries of the batch's threads.
func (c *counter) load(b *schema.Batch, entries []*process.Entry[state]) {
	c.threads = b.Thread().Values(c.threads, b.Events)
	c.shapes = b.Shape().Values(c.shapes, b.Events)
	c.gpus = b.GPU().Values(c.gpus, b.Events)
	c.entries = append(c.entries[:0], make([]*process.Entry[state], len(b.Processes))...)
	for i, e := range entries {
		c.entries[b.Threads[i].Process] = e
	}
}

// each passes the launches of every group to perGroup, by shape, in a slice that is valid during the call. If the
// table would be too large, each passes the launches shape by shape to perShape.
func (c *counter) each(b *schema.Batch, perGroup func(group, []uint64), perShape func(g group, shape int, n uint64)) {
	perProcess := (len(b.GPUs) + 1) * len(b.Shapes)
	if perProcess > maxCells || perProcess*len(b.Processes) > maxCells {
		c.countSparse(b)
		for _, at := range c.order {
			perShape(at.group, at.shape, c.sparse[at])
		}
		return
	}
	c.count(b, perProcess)
	for p, e := range c.entries {
		if e == nil {
			continue
		}
		for gpu := range len(b.GPUs) + 1 {
			row := c.counts[p*perProcess+gpu*len(b.Shapes):][:len(b.Shapes)]
			if used(row) {
				perGroup(group{e, gpu}, row)
			}
		}
	}
}

func (c *counter) count(b *schema.Batch, perProcess int) {
	cells := perProcess * len(b.Processes)
	if cap(c.counts) < cells {
		c.counts = make([]uint64, cells)
	}
	c.counts = c.counts[:cells]
	clear(c.counts)
	constant := b.GPU().Width == 0
	c.base = c.base[:0]
	for i := range b.Threads {
		base := int(b.Threads[i].Process) * perProcess
		if constant {
			base += int(b.GPU().Base) * len(b.Shapes)
		}
		c.base = append(c.base, base)
	}
	if constant {
		for i, t := range c.threads {
			c.counts[c.base[t]+int(c.shapes[i])]++
		}
		return
	}
	for i, t := range c.threads {
		c.counts[c.base[t]+int(c.gpus[i])*len(b.Shapes)+int(c.shapes[i])]++
	}
}

func (c *counter) countSparse(b *schema.Batch) {
	c.sparse = map[cell]uint64{}
	for i, t := range c.threads {
		at := cell{group{c.entries[b.Threads[t].Process], int(c.gpus[i])}, int(c.shapes[i])}
		if c.sparse[at]++; c.sparse[at] == 1 {
			c.order = append(c.order, at)
		}
	}
}

// release drops the entries, because the process table may forget them before the next batch.
func (c *counter) release() {
	clear(c.entries)
	c.sparse, c.order = nil, nil
}

func used(counts []uint64) bool {
	for _, n := range counts {
		if n > 0 {
			return true
		}
	}
	return false
}
