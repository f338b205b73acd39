package process

import (
	"iter"
	"unsafe"

	"github.com/gputap/gputap/schema"
)

// maxGridBytes limits the memory of a Grid. A batch closes at 4,096 events of a few processes, calls or launch shapes.
const maxGridBytes = 8 << 20

// Grid sums the events of one batch by process, GPU and row of another dictionary of the batch. It reuses its memory.
type Grid[S any, C comparable] struct {
	Cells []C
	Base  []int // by thread: where the cells of its process begin

	entries    []*Entry[S] // by index of process; nil for a process without threads
	rows       int
	perProcess int
}

// Cell names a process, a GPU (0: unknown; otherwise 1 + an index into Batch.GPUs) and a row.
type Cell[S any] struct {
	Entry *Entry[S]
	GPU   int
	Row   int
}

// Load prepares empty cells for a batch; entries are those of its threads. The event of thread t on GPU g with row r
// belongs to Cells[Base[t]+g*rows+r]. Load returns false if the grid would be too large.
func (g *Grid[S, C]) Load(b *schema.Batch, entries []*Entry[S], rows int) bool {
	var none C
	g.rows, g.perProcess = rows, (len(b.GPUs)+1)*rows
	most := maxGridBytes / int(unsafe.Sizeof(none))
	if g.perProcess > most || g.perProcess*len(b.Processes) > most {
		return false
	}
	n := g.perProcess * len(b.Processes)
	if cap(g.Cells) < n {
		g.Cells = make([]C, n)
	}
	g.Cells = g.Cells[:n]
	clear(g.Cells)
	g.entries = append(g.entries[:0], make([]*Entry[S], len(b.Processes))...)
	g.Base = g.Base[:0]
	for i, e := range entries {
		p := b.Threads[i].Process
		g.entries[p] = e
		g.Base = append(g.Base, int(p)*g.perProcess)
	}
	return true
}

// All returns the cells with events.
func (g *Grid[S, C]) All() iter.Seq2[Cell[S], C] {
	return func(yield func(Cell[S], C) bool) {
		var none C
		for i, c := range g.Cells {
			if c == none {
				continue
			}
			at := i % g.perProcess
			if !yield(Cell[S]{g.entries[i/g.perProcess], at / g.rows, at % g.rows}, c) {
				return
			}
		}
	}
}

// Release drops the entries, because the process table may forget them before the next batch.
func (g *Grid[S, C]) Release() { clear(g.entries) }
