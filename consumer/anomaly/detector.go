package anomaly

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config of a Detector; the zero Config is a good one.
type Config struct {
	// Warmup is how long after its start a process's allocation sizes are not judged; 0 judges from
	// the 17th allocation on.
	Warmup time.Duration
	// AllocSizeCooldown is how long, in event time, an outlier of the same size as the last one of
	// its process is counted with that one; 0 raises every one.
	AllocSizeCooldown time.Duration
	// OOMCooldown is how long the same call's failures in one process are counted with the first;
	// 0 means 15 minutes.
	OOMCooldown time.Duration
	// OnAlert gets every alert when it is raised, in order; nil for none.
	OnAlert func(Alert)
}

// Detector is the anomaly fold.
type Detector struct {
	cfg Config

	mu         sync.Mutex
	table      *process.Table[state]
	history    history
	raised     map[raisedBy]uint64
	others     map[raisedID]uint64 // of what came too late for a series of its own
	suppressed map[suppressedID]uint64

	pending []Alert // raised by the batch being applied
	tests   []test  // by call of that batch

	out snapshot.Writer
}

// proc is one process and what is usual for it.
type proc = process.Entry[state]

type state struct {
	sizes  baseline
	failed []failed
}

// test says what an event of one call is judged for.
type test uint8

const (
	testNothing  test = iota
	testFailure       // an allocation of host memory
	testSize          // an allocation of GPU memory
	testNewImage      // the process's past means nothing any more
	testEnd
)

// silence after which a process that did not end is forgotten.
const silence = 24 * time.Hour

// New returns a Detector that has seen nothing.
func New(cfg Config) *Detector {
	if cfg.OOMCooldown <= 0 {
		cfg.OOMCooldown = 15 * time.Minute
	}
	return &Detector{
		cfg: cfg, raised: map[raisedBy]uint64{}, others: map[raisedID]uint64{}, suppressed: map[suppressedID]uint64{},
		table: process.NewTable(func(p *proc, silent time.Duration) bool {
			return silent >= silence || (p.Ended && silent >= time.Minute)
		}),
	}
}

// Name is the fold's name.
func (d *Detector) Name() string { return "anomaly" }

// Kinds are the kinds of batches that the fold wants.
func (d *Detector) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory, schema.KindHost} }

// Apply folds one batch. It is called by one goroutine at a time, in seq order per host and kind,
// and does not keep b. It returns no error.
func (d *Detector) Apply(b *schema.Batch) error {
	if b.Kind != schema.KindMemory {
		return nil
	}
	d.fold(b)
	for i := range d.pending {
		if d.cfg.OnAlert != nil {
			d.cfg.OnAlert(d.pending[i])
		}
	}
	d.pending = d.pending[:0]
	return nil
}

// event is a memory event that some rule judges.
type event struct {
	schema.Memory
	batch   *schema.Batch
	process *proc
}

func (e *event) returned() schema.KTime { return e.Time + schema.KTime(e.Duration) }

func (e *event) host() snapshot.HostID {
	return snapshot.HostID{Cluster: e.batch.Cluster, Host: e.batch.Host}
}

// fold looks at one column for most events, and at all of one event only when a rule wants it.
func (d *Detector) fold(b *schema.Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	procs := d.table.Threads(b)
	d.classify(b)
	calls := b.Call()
	for i := range b.Events {
		if t := d.tests[calls.At(i)]; t != testNothing {
			e := event{Memory: b.Memory(i), batch: b}
			e.process = procs[e.Thread]
			d.judge(&e, t)
		}
	}
}

func (d *Detector) classify(b *schema.Batch) {
	d.tests = d.tests[:0]
	for i := range b.Calls {
		t, c := testNothing, &b.Calls[i]
		switch c.Op {
		case schema.OpAlloc, schema.OpCreate:
			switch {
			case c.Class.OnGPU():
				t = testSize
			case c.Class != schema.ClassMulticast: // which holds no memory of its own
				t = testFailure
			}
		case schema.OpExec:
			t = testNewImage
		case schema.OpExit:
			t = testEnd
		}
		d.tests = append(d.tests, t)
	}
}

func (d *Detector) judge(e *event, t test) {
	p := e.process
	switch {
	case t == testEnd:
		p.Ended = true
	case t == testNewImage:
		p.State = state{}
	case e.Result == outOfMemory:
		d.oom(e)
	case t == testSize && e.Result == 0:
		p.Ended = false
		d.allocSize(e)
	}
}

// raise records an alert and returns its number.
func (d *Detector) raise(a Alert) uint64 {
	d.pending = append(d.pending, a)
	d.countRaised(&a)
	return d.history.add(a)
}

// Forget lets go of a host's processes, series and alerts, between two batches.
func (d *Detector) Forget(cluster, host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: host}
	d.table.Forget(id)
	maps.DeleteFunc(d.raised, func(r raisedBy, _ uint64) bool { return r.HostID == id })
	d.history.kept = slices.DeleteFunc(d.history.kept, func(a numbered) bool { return a.host() == id })
}

func (d *Detector) suppress(rule, reason string) { d.suppressed[suppressedID{rule, reason}]++ }

// Alerts are the newest 1,000 alerts, oldest first; those of hosts that came from several shards are mixed by their numbers.
func (d *Detector) Alerts() []Alert {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history.all()
}

// Total is the number of alerts raised, or of the shard that raised most where hosts came from several.
func (d *Detector) Total() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history.total
}
