package bandwidth

import (
	"maps"
	"strconv"
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
	table table

	mu         sync.Mutex
	processes  *process.Table[state]
	series     map[series]*sum
	others     map[labels]*sum // everything above the limit of series
	waits      map[series]*Waits
	otherWaits *Waits // the same for waits; nil: not needed yet

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

func (s *sum) add(more sum) {
	s.calls += more.calls
	s.bytes += more.bytes
	s.busy += more.busy
}

// New returns an empty Meter.
func New(cfg Config) *Meter {
	var forget func(*process.Entry[state], time.Duration) bool
	if cfg.Keep > 0 {
		forget = func(_ *process.Entry[state], silent time.Duration) bool { return silent >= cfg.Keep }
	}
	return &Meter{processes: process.NewTable(forget), series: map[series]*sum{}, others: map[labels]*sum{},
		waits: map[series]*Waits{}}
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
	maps.DeleteFunc(m.series, func(s series, _ *sum) bool { return s.HostID == id })
	maps.DeleteFunc(m.waits, func(s series, _ *Waits) bool { return s.HostID == id })
}

// Apply adds one batch. It ignores heartbeats.
func (m *Meter) Apply(b *schema.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch b.Kind {
	case schema.KindSync:
		m.applySync(b)
		return nil
	case schema.KindCopy:
	default:
		return nil
	}
	m.table.load(b, m.processes.Threads(b))
	m.table.each(b, func(g group, s sum) { m.add(b, g, s) })
	m.table.release()
	return nil
}

// seriesOf returns the series of a process, without a GPU.
func seriesOf(b *schema.Batch, e *process.Entry[state]) series {
	return series{
		snapshot.HostID{Cluster: b.Cluster, Host: b.Host},
		labels{hostname: process.Label(b.Host), container: process.Label(e.Container), comm: process.Label(e.Comm)},
	}
}

// add adds the copies or sets of one group, all with result 0.
func (m *Meter) add(b *schema.Batch, g group, s sum) {
	call, of := &b.Calls[g.call], &g.entry.State
	count := g.entry.Calls.Find(call)
	if call.Op == schema.OpRecord {
		count.Record(s.calls)
		of.recorded += s.calls
		return
	}
	count.OK += s.calls
	row := call.Direction
	if call.Op == schema.OpSet || call.Op == schema.OpSetAsync {
		row = rowSet
	}
	l := seriesOf(b, g.entry)
	l.row = row
	if g.gpu > 0 {
		l.gpu, l.uuid = strconv.Itoa(int(b.GPUs[g.gpu-1].Ordinal)), process.Label(b.GPUs[g.gpu-1].UUID)
	}
	switch call.Op {
	case schema.OpCopy, schema.OpSet:
		of.sync[row].add(s)
		m.at(l).add(s)
	case schema.OpCopyAsync, schema.OpSetAsync:
		l.async = true
		of.async[row].add(s)
		m.at(l).add(s)
	}
}
