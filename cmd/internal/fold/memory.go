package fold

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

// Memory is the fold of gputap-leak: the tracker, PyTorch's tensors, and the coverage fold for its hosts and GPUs. One
// program must know every host, and the tracker reads the heartbeats already. The tensors close their windows before the
// tracker, which raises alerts about both.
type Memory struct {
	Tracker *leak.Tracker
	Tensors *tensor.Fold
	Hosts   *coverage.Fold // nil under gputap run, which has its own
}

// NewMemory returns an empty Memory.
func NewMemory(c leak.Config) *Memory {
	m := newTracking(c)
	m.Hosts = coverage.New()
	return m
}

// newTracking returns a Memory without a coverage fold.
func newTracking(c leak.Config) *Memory {
	tensors := tensor.New(tensor.Config{Keep: c.KeepEnded, Window: c.Window})
	c.Tensors = func(of schema.ProcessID, ordinal int32) (leak.Tensors, bool) {
		v, cached, known := tensors.Verdict(of, ordinal)
		return leak.Tensors{State: v.State, Since: v.Since, PerHour: v.PerHour, Growth: v.GrowthBytes,
			SuspectBytes: v.SuspectBytes, Cached: cached, Why: v.Why, Evidence: v.Evidence}, known
	}
	return &Memory{Tracker: leak.New(c), Tensors: tensors}
}

// MemoryIn returns an empty Memory of gputap run, with all rules in a mode of config. raise may be nil.
func MemoryIn(mode string, window time.Duration, raise func(alert.Alert)) *Memory {
	c := config.DefaultLeak()
	c.Mode = mode
	return newTracking(leak.Config{Window: window, Rules: leakRules(c), OnAlert: raise})
}

func newMemory(c config.Leak, r raise) *Memory {
	return NewMemory(leak.Config{KeepEnded: c.KeepEnded, Window: c.Window, Rules: leakRules(c), OnAlert: r})
}

func leakRules(c config.Leak) leak.Rules {
	r := &c.Rules
	return leak.Rules{
		Mode: modeOf(c.Mode), Cooldown: c.Cooldown,
		Exclude: alert.Exclude{Comm: c.Exclude.Comm, User: c.Exclude.User, Job: c.Exclude.Job},
		Growth:  modeOf(r.Growth.Mode), Unfreed: modeOf(r.Unfreed.Mode), MinUnfreed: uint64(r.Unfreed.MinBytes),
	}
}

// parts are in the order in which their sections are saved.
func (m *Memory) parts() []consumer.Stateful {
	if m.Hosts == nil {
		return []consumer.Stateful{m.Tensors, m.Tracker}
	}
	return []consumer.Stateful{m.Hosts, m.Tensors, m.Tracker}
}

// Parts returns the folds of which m is made.
func (m *Memory) Parts() []consumer.Fold {
	if m.Hosts == nil {
		return []consumer.Fold{m.Tracker, m.Tensors}
	}
	return []consumer.Fold{m.Tracker, m.Tensors, m.Hosts}
}

// Name returns that of the tracker.
func (m *Memory) Name() string { return m.Tracker.Name() }

// Kinds returns the kinds that any part reads.
func (m *Memory) Kinds() (kinds []schema.Kind) {
	for _, f := range m.parts() {
		kinds = append(kinds, f.Kinds()...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Apply gives a batch to the parts that read its kind.
func (m *Memory) Apply(b *schema.Batch) error {
	var failed error
	for _, f := range m.parts() {
		if slices.Contains(f.Kinds(), b.Kind) {
			failed = errors.Join(failed, f.Apply(b))
		}
	}
	return failed
}

// Lost reports lost batches to both parts with events: which kind they had is not known.
func (m *Memory) Lost(cluster, host, boot string, batches uint64) {
	m.Tensors.Lost(cluster, host, boot, batches)
	m.Tracker.Lost(cluster, host, boot, batches)
}

// Tick tells the parts how far the events of a host are complete.
func (m *Memory) Tick(h *schema.Header, through schema.KTime) {
	m.Tensors.Tick(h, through)
	m.Tracker.Tick(h, through)
}

// Forget removes a host from all parts.
func (m *Memory) Forget(cluster, host string) {
	if m.Hosts != nil {
		m.Hosts.Forget(cluster, host)
	}
	m.Tensors.Forget(cluster, host)
	m.Tracker.Forget(cluster, host)
}

// Snapshot yields the sections of each part.
func (m *Memory) Snapshot(yield func(snapshot.Section) error) error {
	for _, f := range m.parts() {
		if err := f.Snapshot(yield); err != nil {
			return err
		}
	}
	return nil
}

// Restore restores one section of the part that saved it.
func (m *Memory) Restore(s snapshot.Section) error {
	name := snapshot.NewReader(s.Data).String() // each section begins with the name of its fold
	for _, f := range m.parts() {
		if f.Name() == name {
			return f.Restore(s)
		}
	}
	return m.Tracker.Restore(s) // which returns the error
}

// Describe implements prometheus.Collector.
func (m *Memory) Describe(to chan<- *prometheus.Desc) {
	m.Hosts.Describe(to)
	m.Tensors.Describe(to)
	m.Tracker.Describe(to)
}

// Overflow reports how often the parts counted a series as other.
func (m *Memory) Overflow(see func(family string, times uint64)) {
	m.Tensors.Overflow(see)
	m.Tracker.Overflow(see)
}

// Collect implements prometheus.Collector.
func (m *Memory) Collect(to chan<- prometheus.Metric) {
	m.Hosts.Collect(to)
	m.Tensors.Collect(to)
	m.Tracker.Collect(to)
}
