package process

import (
	"maps"
	"slices"
)

// Programs choose how many handles they make, and a broken one makes millions, so the memory of the table is bounded.
// Beyond a bound, names, graph contents and GPUs become unknown; no event is lost.
const (
	// MaxRemembered bounds handles and names of all processes, in bytes. A PyTorch process that loads every kernel at
	// its start takes 15 MiB, an ordinary one a hundredth of that.
	MaxRemembered = 32 << 20
	// maxThreads bounds the threads; the name of a thread that was removed is unknown.
	maxThreads = 1 << 16
	// MaxOrdinals is more devices than a process can have.
	MaxOrdinals = 1 << 10
	// maxSizes bounds the GPUs of known size, because a program can invent UUIDs.
	maxSizes = 1 << 10
	// maxKernels bounds the kernels of one graph, maxBlocks its allocations and frees: each launch reports them all.
	maxKernels = 1 << 12
	maxBlocks  = 1 << 10
)

// budget counts the bytes that programs made the table remember: the total when it was last measured, and all that was
// added since.
type budget struct{ used int }

// Bytes of an entry with its share of the map: measured, then rounded up.
const (
	functionBytes = 256
	graphBytes    = 512
	nodeBytes     = 48
	handleBytes   = 64
	blockBytes    = 24
)

func (b *budget) add(bytes int) { b.used += bytes }

// putBounded adds to a map of bounded size: it evicts any one entry to make room.
func putBounded[K comparable, V any](m map[K]V, limit int, key K, value V) {
	if _, known := m[key]; !known && len(m) >= limit {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = value
}

// Trim keeps the memory of the table below a limit, such as MaxRemembered: it discards the handles of the processes
// that have the most. It returns how many processes that were.
func (t *Table) Trim(limit int) (discarded int) {
	if t.budget.used < limit {
		return 0
	}
	sizes, total := map[*Process]int{}, 0
	for q := range t.all() {
		sizes[q] = q.bytes()
		total += sizes[q]
	}
	largestFirst := slices.SortedFunc(maps.Keys(sizes), func(a, b *Process) int { return sizes[b] - sizes[a] })
	for _, q := range largestFirst {
		if total <= limit/2 {
			break
		}
		total -= sizes[q]
		q.discard()
		discarded++
	}
	t.budget.used = total
	return discarded
}

func (p *Process) bytes() int {
	size := handleBytes * (len(p.contexts) + len(p.streams) + len(p.pools) + len(p.reached))
	for _, f := range p.funcs {
		size += functionBytes + len(f.Name)
	}
	for _, g := range p.captures {
		size += g.bytes()
	}
	for _, g := range p.graphs.graphs {
		size += g.bytes()
	}
	for _, e := range p.executables {
		size += e.bytes()
	}
	return size
}

func (g *Graph) bytes() int {
	return graphBytes + nodeBytes*len(g.Kernels) + blockBytes*len(g.Memory)
}

// discard removes all handles of a process from the table, except its primary contexts. From then on the process
// counts as one that built graphs unseen.
func (p *Process) discard() {
	p.funcs = map[uint64]*Function{}
	p.graphs = newGraphs(true, p.budget)
	p.hostMem = hostMem{gap: true}
	d := &p.devices
	primaries := slices.Collect(maps.Values(d.primaries))
	maps.DeleteFunc(d.contexts, func(context uint64, _ *contextDevice) bool {
		return !slices.Contains(primaries, context)
	})
	clear(d.streams)
	clear(d.pools)
	d.DeviceVersion++
}
