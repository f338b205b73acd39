package fold

import (
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Memory is the fold of gputap-leak: the tracker, and the coverage fold, because hosts and GPUs need an owner and the
// reader of the tracker fetches heartbeats already. Only the tracker has metrics.
type Memory struct {
	*leak.Tracker
	Hosts *coverage.Fold
}

func newMemory(c leak.Config) *Memory { return &Memory{leak.New(c), coverage.New()} }

// Parts returns both folds.
func (m *Memory) Parts() []consumer.Fold { return []consumer.Fold{m.Tracker, m.Hosts} }

// Apply gives a batch to both folds.
func (m *Memory) Apply(b *schema.Batch) error {
	if err := m.Hosts.Apply(b); err != nil {
		return err
	}
	return m.Tracker.Apply(b)
}

// Forget removes a host from both folds.
func (m *Memory) Forget(cluster, host string) {
	m.Hosts.Forget(cluster, host)
	m.Tracker.Forget(cluster, host)
}

// Snapshot yields the sections of the coverage fold, and then those of the tracker.
func (m *Memory) Snapshot(yield func(snapshot.Section) error) error {
	if err := m.Hosts.Snapshot(yield); err != nil {
		return err
	}
	return m.Tracker.Snapshot(yield)
}

// Restore restores one section of either fold.
func (m *Memory) Restore(s snapshot.Section) error {
	if snapshot.NewReader(s.Data).String() == m.Hosts.Name() { // each section begins with the name of its fold
		return m.Hosts.Restore(s)
	}
	return m.Tracker.Restore(s)
}
