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
	grid process.Grid[state, sum]

	threads, calls, gpus, results, bytes, durations []uint64 // columns of the current batch

	mu        sync.Mutex
	processes *process.Table[state]
	moves     process.Series[series, sum, *sum] // copies and sets
	waits     process.Series[process.Workload, Waits, *Waits]

	out snapshot.Writer
}

// state is the copies, sets and waits of one process.
type state struct {
	sync, async [numRows]sum
	waits       Waits
	recorded    uint64 // copies and sets recorded into a graph
}

// A row is a direction, or sets.
const (
	rowSet  = schema.NumDirections
	numRows = schema.NumDirections + 1
)

// sum adds up copies or sets.
type sum struct {
	calls uint64
	bytes uint64
	busy  uint64 // host time in the calls, ns
}

// Add adds more.
func (s *sum) Add(more *sum) {
	s.calls += more.calls
	s.bytes += more.bytes
	s.busy += more.busy
}

// Waits counts calls that wait for the GPU.
type Waits struct {
	Calls uint64 // successful waits for contexts, CUDA streams and CUDA events
	NS    uint64 // host time in them, ns
}

// Add adds more.
func (w *Waits) Add(more *Waits) {
	w.Calls += more.Calls
	w.NS += more.NS
}

// New returns an empty Meter.
func New(cfg Config) *Meter {
	return &Meter{
		processes: process.NewTable(process.Silent[state](cfg.Keep)),
		moves:     process.NewSeries[series, sum](2 * int(numRows)), // a row and mode each
		waits:     process.NewSeries[process.Workload, Waits](1),
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

// applyCopies sums the events by process, GPU and call and adds the sums. If there are too many combinations, it adds
// event by event.
func (m *Meter) applyCopies(b *schema.Batch) {
	entries := m.processes.Threads(b)
	m.threads = b.Thread().Values(m.threads, b.Events)
	m.calls = b.Call().Values(m.calls, b.Events)
	m.gpus = b.GPU().Values(m.gpus, b.Events)
	m.results = b.Result().Values(m.results, b.Events)
	m.bytes = b.Bytes().Values(m.bytes, b.Events)
	m.durations = b.Duration().Values(m.durations, b.Events)
	fits := m.grid.Load(b, entries, len(b.Calls))
	calls, gpus, results, bytes, durations := m.calls, m.gpus, m.results, m.bytes, m.durations
	cells, base, rows := m.grid.Cells, m.grid.Base, len(b.Calls)
	for i, thread := range m.threads {
		switch {
		case results[i] != 0:
			entries[thread].Calls.Find(&b.Calls[calls[i]]).Count(uint32(results[i]))
		case fits:
			cell := &cells[base[thread]+int(gpus[i])*rows+int(calls[i])]
			cell.calls++
			cell.bytes += bytes[i]
			cell.busy += durations[i]
		default:
			m.add(b, process.Cell[state]{Entry: entries[thread], GPU: int(gpus[i]), Row: int(calls[i])},
				&sum{1, bytes[i], durations[i]})
		}
	}
	if fits {
		for at, s := range m.grid.All() {
			m.add(b, at, &s)
		}
		m.grid.Release()
	}
}

// add adds the copies or sets of one process, GPU and call, all with result 0.
func (m *Meter) add(b *schema.Batch, at process.Cell[state], s *sum) {
	call, of := &b.Calls[at.Row], &at.Entry.State
	count := at.Entry.Calls.Find(call)
	if call.Op == schema.OpRecord {
		count.Recorded += s.calls
		of.recorded += s.calls
		return
	}
	count.OK += s.calls
	row := call.Direction
	if call.Op == schema.OpSet || call.Op == schema.OpSetAsync {
		row = rowSet
	}
	k := series{process.NewWorkload(b, &at.Entry.Info, at.GPU), row, false}
	switch call.Op {
	case schema.OpCopy, schema.OpSet:
		of.sync[row].Add(s)
		m.moves.At(k).Add(s)
	case schema.OpCopyAsync, schema.OpSetAsync:
		k.async = true
		of.async[row].Add(s)
		m.moves.At(k).Add(s)
	}
}

func (m *Meter) applyWaits(b *schema.Batch) {
	entries := m.processes.Threads(b)
	for i := range b.Events {
		e := b.Sync(i)
		p, call := entries[e.Thread], &b.Calls[e.Call]
		p.Calls.Find(call).Count(e.Result)
		if call.Op != schema.OpSync || e.Result != 0 {
			continue
		}
		one := Waits{1, e.Duration}
		p.State.waits.Add(&one)
		m.waits.At(process.NewWorkload(b, &p.Info, int(e.GPU))).Add(&one)
	}
}
