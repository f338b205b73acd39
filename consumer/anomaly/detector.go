package anomaly

import (
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config configures a Detector. The zero Config is usable.
type Config struct {
	// Warmup is how long after the start of a process its allocation sizes are not judged; 0: they are judged from
	// the 17th allocation on.
	Warmup time.Duration
	// AllocSizeCooldown is how long, in event time, another outlier of the same size in a process counts as a
	// repetition of the last alert; 0: every outlier raises an alert.
	AllocSizeCooldown time.Duration
	// OOMCooldown is how long further failures of the same call in a process count as repetitions; 0: 15 minutes.
	OOMCooldown time.Duration
	// OnAlert is called with every new alert, in order; nil: not called.
	OnAlert func(Alert)
}

// Detector is the anomaly fold.
type Detector struct {
	cfg Config

	mu         sync.Mutex
	table      *process.Table[state]
	history    history
	raised     process.Series[raised, process.Count, *process.Count]
	suppressed map[suppressed]uint64

	event   event
	pending []Alert                   // raised by the current batch
	rules   []func(*Detector, *event) // by call of the current batch

	out snapshot.Writer
}

// proc is one process with its baseline.
type proc = process.Entry[state]

type state struct {
	sizes  baseline
	failed []failed
}

// silence is how long a process that did not end may be silent before it is forgotten.
const silence = 24 * time.Hour

// New returns an empty Detector.
func New(cfg Config) *Detector {
	if cfg.OOMCooldown <= 0 {
		cfg.OOMCooldown = 15 * time.Minute
	}
	return &Detector{
		cfg: cfg, raised: process.NewSeries[raised, process.Count](rules), suppressed: map[suppressed]uint64{},
		table: process.NewTable(func(p *proc, silent time.Duration) bool {
			return silent >= silence || (p.Ended && silent >= time.Minute)
		}),
	}
}

// Name returns the fold's name.
func (d *Detector) Name() string { return "anomaly" }

// Kinds returns the kinds of batches that the fold reads.
func (d *Detector) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory, schema.KindHost} }

// Apply folds one batch. One goroutine at a time calls it, in seq order per host and kind. Apply does not keep b. It
// always returns nil.
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

// event is a memory event that a rule judges.
type event struct {
	schema.Memory
	batch   *schema.Batch
	process *proc
}

func (e *event) returned() schema.KTime { return e.Time + schema.KTime(e.Duration) }

func (e *event) host() snapshot.HostID {
	return snapshot.HostID{Cluster: e.batch.Cluster, Host: e.batch.Host}
}

// fold reads one column of every event, and all columns only of events that a rule judges.
func (d *Detector) fold(b *schema.Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	procs := d.table.Threads(b)
	d.rules = d.rules[:0]
	for i := range b.Calls {
		d.rules = append(d.rules, ruleOf(&b.Calls[i]))
	}
	calls := b.Call()
	for i := range b.Events {
		if rule := d.rules[calls.At(i)]; rule != nil {
			e := &d.event
			e.Memory, e.batch = b.Memory(i), b
			e.process = procs[e.Thread]
			rule(d, e)
		}
	}
}

// ruleOf returns the rule for the events of one call; nil: none.
func ruleOf(c *schema.CallRef) func(*Detector, *event) {
	switch c.Op {
	case schema.OpAlloc, schema.OpCreate:
		switch {
		case c.Class.OnGPU():
			return (*Detector).allocation
		case c.Class != schema.ClassMulticast: // a multicast object has no memory of its own
			return (*Detector).oom
		}
	case schema.OpExec:
		return func(_ *Detector, e *event) { e.process.State = state{} } // the baseline is void
	case schema.OpExit:
		return func(_ *Detector, e *event) { e.process.Ended = true }
	}
	return nil
}

// allocation judges an allocation of GPU memory.
func (d *Detector) allocation(e *event) {
	if e.Result != 0 {
		d.oom(e)
		return
	}
	e.process.Ended = false
	d.allocSize(e)
}

// raise stores an alert and returns its number.
func (d *Detector) raise(a Alert) uint64 {
	d.pending = append(d.pending, a)
	w := process.Workload{HostID: a.host(), Container: process.Label(a.Container), Comm: process.Label(a.Comm)}
	*d.raised.At(raised{w, a.Rule, a.Severity})++
	return d.history.add(a)
}

// Forget removes a host with its processes, series and alerts, between two batches.
func (d *Detector) Forget(cluster, host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: host}
	d.table.Forget(id)
	d.raised.Forget(id)
	d.history.kept = slices.DeleteFunc(d.history.kept, func(a numbered) bool { return a.host() == id })
}

func (d *Detector) suppress(rule, reason string) { d.suppressed[suppressed{rule, reason}]++ }

// Alerts returns the newest 1,000 alerts, oldest first. Alerts of hosts from several shards are ordered by their
// numbers.
func (d *Detector) Alerts() []Alert {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Alert, 0, len(d.history.kept))
	for i := range d.history.kept {
		all = append(all, d.history.kept[i].Alert)
	}
	return all
}
