package producer

import "github.com/gputap/gputap/schema"

// Programs choose how many handles they make, and a broken one makes millions: what they can make the
// producer remember has bounds. Nothing is lost by them but names, what graphs run, and which GPU a
// call was on.
const (
	// mostRemembered bounds handles and names of all processes, in bytes. A PyTorch process that loads
	// every kernel at its start takes 15 MiB, an ordinary one a hundredth of that.
	mostRemembered = 32 << 20
	// mostThreads that made calls are known at a time; of one beyond, the name is not known.
	mostThreads = 1 << 16
	// mostOrdinals is more devices than a process can have.
	mostOrdinals = 1 << 10
	// mostKernels of one graph, and mostBlocks that it allocates or frees: each launch tells all of them.
	mostKernels = 1 << 12
	mostBlocks  = 1 << 10
)

// budget counts what programs make the producer remember, in bytes since it was last weighed.
type budget struct{ grown int }

// Bytes that an entry takes with its share of the map, by measurement rounded up.
const (
	functionBytes = 256
	graphBytes    = 512
	nodeBytes     = 48
	handleBytes   = 64
	blockBytes    = 24
)

func (b *budget) grow(bytes int) {
	if b != nil {
		b.grown += bytes
	}
}

// put adds to a map of bounded size: one entry, whichever, makes room.
func put[K comparable, V any](m map[K]V, most int, key K, value V) {
	if _, known := m[key]; !known && len(m) >= most {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = value
}

// trim keeps what is remembered below mostRemembered: the processes that have the most forget. It
// reports how many did.
func (p *processes) trim(most int) (forgot int) {
	if p.budget.grown < most {
		return 0
	}
	sizes := map[*process]int{}
	total := 0
	weigh := func(q *process) {
		if _, done := sizes[q]; !done {
			sizes[q] = q.bytes()
			total += sizes[q]
		}
	}
	for _, q := range p.byKey {
		weigh(q)
	}
	for _, q := range p.byPID {
		weigh(q)
	}
	for total > most/2 {
		var largest *process
		for q, size := range sizes {
			if largest == nil || size > sizes[largest] {
				largest = q
			}
		}
		if largest == nil {
			break
		}
		total -= sizes[largest]
		delete(sizes, largest)
		largest.forget()
		forgot++
	}
	p.budget.grown = total
	return forgot
}

func (q *process) bytes() int {
	size := handleBytes * (len(q.devices.contexts) + len(q.devices.streams) + len(q.devices.pools))
	for _, f := range q.funcs {
		size += functionBytes + len(f.Name)
	}
	for _, g := range q.graphs.captures {
		size += g.bytes()
	}
	for _, g := range q.graphs.graphs {
		size += g.bytes()
	}
	for _, e := range q.graphs.executables {
		size += e.bytes()
	}
	return size
}

func (g *graph) bytes() int {
	return graphBytes + nodeBytes*len(g.kernels) + blockBytes*len(g.memory)
}

// forget drops what a process made known of its handles. Graphs made before are unseen from now on.
func (q *process) forget() {
	q.funcs = map[uint64]*function{}
	told, generation := q.graphs.told, q.graphs.toldGeneration
	q.graphs = newGraphs(true)
	q.graphs.told, q.graphs.toldGeneration = told, generation // the open batch has them
	contexts := q.devices.contexts
	q.devices.contexts, q.devices.streams, q.devices.pools = map[uint64]*placed{}, map[uint64]ofContext{}, map[uint64]uint32{}
	for _, primary := range q.devices.primaries {
		if known := contexts[primary]; known != nil {
			q.devices.contexts[primary] = known
		}
	}
	q.devices.change++
	q.share(q.budget)
}

// share makes a process count with all others.
func (q *process) share(b *budget) { q.budget, q.graphs.budget, q.devices.budget = b, b, b }

// look is how often processes are looked for whose end may be lost.
const look = schema.KTime(5_000_000_000)

// doubt is called with the number of records of process life that were lost so far. When it has grown,
// the end of any process that is known by now may be lost, or never be told: those are watched.
func (p *processes) doubt(lost uint64) {
	if lost != p.lost {
		p.lost, p.doubts = lost, 2 // once more, for those that are still in the ring
	}
	if p.doubts == 0 {
		return
	}
	p.doubts--
	for _, q := range p.byKey {
		q.doubted = true
	}
	for _, q := range p.byPID {
		q.doubted = true
	}
}

// vanished lists doubted processes that were gone at this look and at the one before: between them every
// ring was read, so their end will not be told any more.
func (p *processes) vanished() (gone []*process) {
	if !p.identity.listed {
		return nil // /proc is of another pid namespace
	}
	check := func(q *process) {
		if !q.doubted || q.ended != 0 || running(q.PID, q.Start) {
			return
		}
		if q.missed {
			gone = append(gone, q)
		}
		q.missed = true
	}
	for _, q := range p.byKey {
		check(q)
	}
	for _, q := range p.byPID {
		if q.Start == 0 {
			check(q)
		}
	}
	return gone
}

const (
	// A process may have this many threads known before those that ended are looked for.
	enoughThreads = 4096
	// mostLooks bounds the time of one search: some 4 us each.
	mostLooks = 4096
)

// forgetThreads drops threads that ended while their process goes on, of which no record tells.
func (p *processes) forgetThreads() {
	p.rounds++
	if len(p.threads) <= enoughThreads || !p.identity.listed {
		return
	}
	looks := 0
	for key, t := range p.threads {
		if t.seen+1 >= p.rounds {
			continue // it has just made a call
		}
		if !exists(t.process.PID, t.tid) {
			delete(p.threads, key)
		}
		if looks++; looks >= mostLooks {
			return
		}
	}
}
