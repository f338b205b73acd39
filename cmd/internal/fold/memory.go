package fold

import (
	"slices"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

// Memory is the fold of gputap-leak: the tracker, PyTorch's tensors, and the coverage fold for its hosts and GPUs. One
// program must know every host, and the tracker reads the heartbeats already. The tensors close their windows before
// the tracker, which raises alerts about both.
type Memory struct {
	composite
	Tracker *leak.Tracker
	Tensors *tensor.Fold
	Hosts   *coverage.Fold // nil under gputap run, which has its own
}

// NewMemory returns an empty Memory.
func NewMemory(c leak.Config) *Memory {
	m := newTracking(c)
	m.Hosts = coverage.New()
	m.composite = newComposite(m.Hosts, m.Tensors, m.Tracker)
	return m
}

// newTracking returns a Memory without a coverage fold.
func newTracking(c leak.Config) *Memory {
	tensors := tensor.New(tensor.Config{Keep: c.KeepEnded, Window: c.Window})
	c.Tensors = func(of schema.ProcessID, ordinal int32) (leak.Tensors, bool) {
		v, cached, known := tensors.Verdict(of, ordinal)
		return leak.Tensors{State: v.State, Since: v.Since, PerHour: v.PerHour, Growth: v.GrowthBytes,
			SuspectBytes: v.SuspectBytes, Cached: cached, Why: v.Why, Evidence: v.Evidence,
			Groups: groupsOf(v.Groups)}, known
	}
	m := &Memory{Tracker: leak.New(c), Tensors: tensors}
	m.composite = newComposite(m.Tensors, m.Tracker)
	return m
}

func groupsOf(tensors []tensor.Group) (all []leak.Group) {
	for _, g := range tensors {
		all = append(all, leak.Group{TID: g.TID, Thread: g.Thread, Class: "tensor", SizeClass: g.SizeClass,
			Bytes: g.Bytes, Allocations: g.Allocations, Oldest: g.Oldest})
	}
	return all
}

// MemoryOfRun returns an empty Memory of gputap run. raise may be nil.
func MemoryOfRun(c config.Leak, raise func(alert.Alert)) *Memory {
	return newTracking(leakConfig(c, raise))
}

func newMemory(c config.Leak, r raise) *Memory { return NewMemory(leakConfig(c, r)) }

func leakConfig(c config.Leak, raise func(alert.Alert)) leak.Config {
	return leak.Config{KeepEnded: c.KeepEnded, Window: c.Window, Rules: leakRules(c), OnAlert: raise}
}

func leakRules(c config.Leak) leak.Rules {
	r := &c.Rules
	return leak.Rules{
		Mode: modeOf(c.Mode), Cooldown: c.Cooldown,
		Exclude: alert.Exclude{Comm: c.Exclude.Comm, User: c.Exclude.User, Job: c.Exclude.Job},
		Growth:  modeOf(r.Growth.Mode), Unfreed: modeOf(r.Unfreed.Mode), MinUnfreed: uint64(r.Unfreed.MinBytes),
	}
}

// Parts returns the folds of which m is made. The tracker comes first: the others add to its processes.
func (m *Memory) Parts() []consumer.Fold {
	folds := m.composite.Parts()
	slices.Reverse(folds)
	return folds
}

// Name returns that of the tracker.
func (m *Memory) Name() string { return m.Tracker.Name() }
