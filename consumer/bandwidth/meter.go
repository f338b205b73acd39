package bandwidth

import (
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config configures a Meter. The zero Config is usable.
type Config struct {
	Keep time.Duration // a process is forgotten this long after its last copy; 0: never
}

// Meter measures the copies and waits of all processes.
type Meter struct {
	grid  process.Grid[state, sum]
	times times
	to    target // of the last cell

	threads, calls, gpus, results, bytes, durations, hostMem []uint64 // columns of the current batch

	mu        sync.Mutex
	processes *process.Table[state]
	moves     process.Series[series, sum, *sum] // copies and sets
	ended     process.Series[series, sum, *sum] // asynchronous copies
	waits     process.Series[process.Workload, Waits, *Waits]
	sizes     process.Series[sizeKey, sizes, *sizes]
	rates     process.Series[rateKey, process.Powers, *process.Powers]

	out snapshot.Writer
}

// New returns an empty Meter.
func New(cfg Config) *Meter {
	return &Meter{
		processes: process.NewTable(process.Silent[state](cfg.Keep)),
		moves:     process.NewSeries[series, sum](2 * int(numRows)), // a row and mode each
		ended:     process.NewSeries[series, sum](int(numRows)),
		waits:     process.NewSeries[process.Workload, Waits](1),
		sizes:     process.NewSeries[sizeKey, sizes](process.MaxSeries - process.MaxHistograms + 2*int(numRows)),
		rates:     process.NewSeries[rateKey, process.Powers](process.MaxSeries - process.MaxHistograms + int(numRows)),
	}
}

// Name returns the fold's name.
func (m *Meter) Name() string { return "bandwidth" }

// Kinds returns the kinds of batches that the fold reads.
func (m *Meter) Kinds() []schema.Kind {
	return []schema.Kind{schema.KindCopy, schema.KindSync, schema.KindHost}
}

// Forget removes a host with its processes and series, between two batches. The counts of comm="other" stay.
func (m *Meter) Forget(cluster, host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: host}
	m.processes.Forget(id)
	m.moves.Forget(id)
	m.waits.Forget(id)
	m.rates.Forget(id)
	m.ended.Forget(id)
}

// Apply adds one batch. It ignores heartbeats.
func (m *Meter) Apply(b *schema.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch b.Kind {
	case schema.KindCopy:
		m.applyCopies(b)
	case schema.KindSync:
		m.applyWaits(b)
	}
	return nil
}

// applyCopies sums the events by process, GPU, call, size and host memory, and adds the sums. If there are too many
// combinations, or more than are worth it, it adds event by event.
func (m *Meter) applyCopies(b *schema.Batch) {
	entries := m.processes.Threads(b)
	m.threads = b.Thread().Values(m.threads, b.Events)
	m.calls = b.Call().Values(m.calls, b.Events)
	m.gpus = b.GPU().Values(m.gpus, b.Events)
	m.results = b.Result().Values(m.results, b.Events)
	m.bytes = b.Bytes().Values(m.bytes, b.Events)
	m.durations = b.Duration().Values(m.durations, b.Events)
	m.hostMem = b.HostMem().Values(m.hostMem, b.Events)
	rows := len(b.Calls) * perCall
	worth := rows*(len(b.GPUs)+1)*len(b.Processes) <= 4*b.Events+512
	if !worth || !m.grid.Load(b, entries, rows) {
		m.applyEach(b, entries)
		return
	}
	m.times.load(b, entries)
	m.sum(b, entries, rows)
	m.to = target{}
	for at, s := range m.grid.All() {
		m.add(b, at, &s)
	}
	m.grid.Release()
	m.addTimes(b)
	clear(m.times.entries) // the process table may forget them
}

// sum sums the successful events in the grid and in the times.
func (m *Meter) sum(b *schema.Batch, entries []*process.Entry[state], rows int) {
	calls, gpus, results, bytes, durations, hostMem := m.calls, m.gpus, m.results, m.bytes, m.durations, m.hostMem
	cells, base := m.grid.Cells, m.grid.Base
	for i, thread := range m.threads {
		call, gpu := int(calls[i]), int(gpus[i])
		if results[i] != 0 {
			entries[thread].Calls.Find(&b.Calls[call]).Count(uint32(results[i]))
			continue
		}
		cell := &cells[base[thread]+gpu*rows+call*perCall+part(bytes[i], hostMem[i])]
		cell.calls++
		cell.bytes += bytes[i]
		cell.busy += durations[i]
		m.times.observe(thread, gpu, call, bytes[i], durations[i])
	}
}

// applyEach adds event by event.
func (m *Meter) applyEach(b *schema.Batch, entries []*process.Entry[state]) {
	m.to = target{}
	for i, thread := range m.threads {
		if m.results[i] != 0 {
			entries[thread].Calls.Find(&b.Calls[m.calls[i]]).Count(uint32(m.results[i]))
			continue
		}
		at := process.Cell[state]{Entry: entries[thread], GPU: int(m.gpus[i]),
			Row: int(m.calls[i])*perCall + part(m.bytes[i], m.hostMem[i])}
		m.add(b, at, &sum{1, m.bytes[i], m.durations[i]})
		m.addTime(b, entries[thread].Comm, at.GPU, int(m.calls[i]), m.bytes[i], m.durations[i])
	}
}

// The grid has perCall cells for each call: a size and a class of host memory.
const (
	sizePowers = 41 // up to 1 TiB
	perCall    = sizePowers * int(schema.NumHostMems)
)

// part returns the cell of a call. Copies of a newer producer may have classes that this version does not know.
func part(bytes, hostMem uint64) int {
	if hostMem >= uint64(schema.NumHostMems) {
		hostMem = 0
	}
	return int(hostMem)*sizePowers + min(process.Power(bytes), sizePowers-1)
}

// target is where the copies or sets of one process, GPU and call count.
type target struct {
	entry *process.Entry[state]
	gpu   int
	call  int
	row   schema.Direction // or rowSet
	uuid  string
	moved *sum
	sizes *sizes // nil for sets
}

// target returns the target of a cell, which is often that of the cell before.
func (m *Meter) target(b *schema.Batch, at process.Cell[state], call int) *target {
	if m.to.entry == at.Entry && m.to.gpu == at.GPU && m.to.call == call {
		return &m.to
	}
	m.to = target{entry: at.Entry, gpu: at.GPU, call: call, row: rowOf(&b.Calls[call])}
	if at.GPU > 0 {
		m.to.uuid = b.GPUs[at.GPU-1].UUID
	}
	w := process.NewWorkload(b, &at.Entry.Info, at.GPU)
	async, done := submitted(b.Calls[call].Op)
	if b.Calls[call].Op == schema.OpCopied {
		m.to.moved = m.ended.At(series{w, m.to.row, true})
	}
	if !done {
		return &m.to
	}
	m.to.moved = m.moves.At(series{w, m.to.row, async})
	if m.to.row != rowSet {
		m.to.sizes = m.sizes.At(sizeKey{w.Comm, m.to.row, async})
	}
	return &m.to
}

// rowOf returns the row of a call.
func rowOf(call *schema.CallRef) schema.Direction {
	if call.Op == schema.OpSet || call.Op == schema.OpSetAsync {
		return rowSet
	}
	return call.Direction
}

// submitted reports whether an op is a copy or set, and whether it is asynchronous.
func submitted(op schema.Op) (async, is bool) {
	switch op {
	case schema.OpCopy, schema.OpSet:
		return false, true
	case schema.OpCopyAsync, schema.OpSetAsync:
		return true, true
	}
	return false, false
}

// add adds the copies or sets of one process, GPU, call, size and host memory, all with result 0.
func (m *Meter) add(b *schema.Batch, at process.Cell[state], s *sum) {
	call, of := &b.Calls[at.Row/perCall], &at.Entry.State
	to := m.target(b, at, at.Row/perCall)
	power, hostMem := at.Row%perCall%sizePowers, schema.HostMem(at.Row%perCall/sizePowers)
	key := rowKey{to.uuid, to.row, classOf(power), hostMem}
	switch call.Op {
	case schema.OpCopied:
		of.row(key).ended.Add(s)
		to.moved.Add(s)
		return
	case schema.OpCopiedBehind:
		of.row(key).behind.Add(s)
		return
	}
	count := at.Entry.Calls.Find(call)
	if call.Op == schema.OpRecord {
		count.Recorded += s.calls
		of.recorded += s.calls
		return
	}
	count.OK += s.calls
	if to.moved == nil {
		return
	}
	to.moved.Add(s)
	if to.sizes != nil {
		to.sizes.bytes.ObserveAll(power, s.calls, s.bytes)
	}
	if async, _ := submitted(call.Op); async {
		of.row(key).async.Add(s)
	} else {
		of.row(key).sync.Add(s)
	}
}

func (m *Meter) applyWaits(b *schema.Batch) {
	entries := m.processes.Threads(b)
	var of struct { // where the last event counted
		entry *process.Entry[state]
		gpu   uint32
		waits *Waits
	}
	for i := range b.Events {
		e := b.Sync(i)
		p, call := entries[e.Thread], &b.Calls[e.Call]
		if call.Op == schema.OpResume {
			continue // no call
		}
		p.Calls.Find(call).Count(e.Result)
		if call.Op != schema.OpSync || e.Result != 0 {
			continue
		}
		one := Waits{1, e.Duration}
		p.State.waits.Add(&one)
		if of.entry != p || of.gpu != e.GPU {
			of.entry, of.gpu, of.waits = p, e.GPU, m.waits.At(process.NewWorkload(b, &p.Info, int(e.GPU)))
		}
		of.waits.Add(&one)
	}
}
