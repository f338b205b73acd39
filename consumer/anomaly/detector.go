package anomaly

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Alert is what OnAlert gets.
type Alert = alert.Alert

// Config configures a Detector. The zero Config is usable.
type Config struct {
	Rules rule.Config
	// OnAlert is called with every alert that fires or clears, in order; nil: not called.
	OnAlert func(Alert)
}

// Detector is the anomaly fold.
type Detector struct {
	onAlert func(Alert)
	kinds   []schema.Kind

	mu    sync.Mutex
	table *process.Table[rule.State]
	hosts map[snapshot.HostID]*rule.Host
	book  *alert.Book
	rules *rule.Set

	event   rule.Event
	actions []action // by call of the current batch
	weights []uint64 // by launch shape
	graphs  []uint64 // kernels by function; 0: no graph
	counts  []uint64 // by thread
	columns columns

	out snapshot.Writer
}

// columns are those of the current batch.
type columns struct{ times, threads, calls, results, bytes, shapes, durations, gpus, memory []uint64 }

// proc is one process with the state of the rules.
type proc = rule.Process

const (
	keepSilent = 24 * time.Hour   // a process that did not end
	keepEnded  = 10 * time.Minute // its alerts have cleared before
)

// New returns an empty Detector.
func New(cfg Config) *Detector {
	d := &Detector{onAlert: cfg.OnAlert, hosts: map[snapshot.HostID]*rule.Host{},
		book: alert.NewBook(alert.Config{Family: "anomaly", Cooldown: cfg.Rules.CooldownTime()}),
		table: process.NewTable(func(p *proc, silent time.Duration) bool {
			return silent >= keepSilent || p.Ended && silent >= keepEnded
		}),
	}
	d.rules = rule.New(cfg.Rules, d.book, d.table.AppendOf)
	d.kinds = d.rules.Kinds()
	d.table.OnForget(func(p *proc) {
		d.rules.Release(p)
		d.book.ClearProcess(p.ID, p.Last, "the process was forgotten", nil)
	})
	return d
}

// Name returns the fold's name.
func (d *Detector) Name() string { return "anomaly" }

// Kinds returns the kinds of batches that the rules need.
func (d *Detector) Kinds() []schema.Kind { return d.kinds }

// Apply folds one batch. One goroutine at a time calls it, in seq order per host and kind. Apply does not keep b. It
// always returns nil.
func (d *Detector) Apply(b *schema.Batch) error {
	if !slices.Contains(d.kinds, b.Kind) {
		return nil
	}
	d.mu.Lock()
	d.fold(b)
	changes := d.book.Changes()
	d.mu.Unlock()
	d.deliver(changes)
	return nil
}

func (d *Detector) fold(b *schema.Batch) {
	h := d.host(hostOf(&b.Header))
	if !h.Sees(b) || b.Kind == schema.KindHost {
		return
	}
	procs := d.table.Threads(b)
	for _, p := range procs {
		h.Begin(p)
	}
	switch b.Kind {
	case schema.KindMemory:
		d.memory(b, h, procs)
	case schema.KindLaunch:
		d.launches(b, procs)
	case schema.KindCopy:
		d.copies(b, procs)
	case schema.KindTensor:
		d.tensors(b, procs)
	}
}

func hostOf(h *schema.Header) snapshot.HostID {
	return snapshot.HostID{Cluster: h.Cluster, Host: h.Host}
}

func (d *Detector) host(id snapshot.HostID) *rule.Host {
	h := d.hosts[id]
	if h == nil {
		h = &rule.Host{}
		d.hosts[id] = h
	}
	return h
}

// Tick closes the windows of a host that end at through or before.
func (d *Detector) Tick(header *schema.Header, through schema.KTime) {
	d.mu.Lock()
	id := hostOf(header)
	d.rules.Tick(header, d.host(id), d.table.Of(id), through)
	changes := d.book.Changes()
	d.mu.Unlock()
	d.deliver(changes)
}

// Lost takes note of batches of a host that the fold will never see.
func (d *Detector) Lost(cluster, host, _ string, batches uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host(snapshot.HostID{Cluster: cluster, Host: host}).Misses(batches)
}

// Forget removes a host with its processes, series and alerts, between two batches. Alerts that fire clear.
func (d *Detector) Forget(cluster, host string) {
	d.mu.Lock()
	id := snapshot.HostID{Cluster: cluster, Host: host}
	d.table.Forget(id)
	d.book.Forget(id)
	delete(d.hosts, id)
	changes := d.book.Changes()
	d.mu.Unlock()
	d.deliver(changes)
}

func (d *Detector) deliver(changes []Alert) {
	if d.onAlert == nil {
		return
	}
	for i := range changes {
		d.onAlert(changes[i])
	}
}

// Alerts returns the alerts that fire and the 1,000 that cleared last, oldest first.
func (d *Detector) Alerts() []Alert {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.Alerts()
}

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (d *Detector) Snapshot(yield func(snapshot.Section) error) error {
	hosts := slices.Concat(d.table.Hosts(), d.book.Hosts(), slices.Collect(maps.Keys(d.hosts)))
	return d.form().Save(&d.out, hosts, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply. Restored alerts are
// not raised again.
func (d *Detector) Restore(section snapshot.Section) error { return d.form().Restore(section) }

func (d *Detector) form() snapshot.Form {
	return snapshot.Form{Fold: "anomaly", Version: 1, Lock: &d.mu, Shard: d.codeShard, Host: d.codeHost}
}

func (d *Detector) codeShard(c *snapshot.Codec) {
	d.table.CodeShard(c)
	d.book.CodeShard(c)
}

func (d *Detector) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	known := d.hosts[id] != nil
	if c.Bool(&known); known {
		d.host(id).Code(c)
	}
	d.book.CodeHost(c, id)
	d.table.CodeHost(c, id, func(p *proc) {
		p.State.Code(c, id)
		if c.Reading() {
			d.rules.Restored(p)
		}
	})
}
