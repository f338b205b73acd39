package fold

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/tensor"
)

// Memory is the fold of gputap-leak: the tracker, PyTorch's tensors, and the coverage fold for its hosts and GPUs. One
// program must know every host, and the tracker reads the heartbeats already. Coverage has no metrics here.
type Memory struct {
	composite
	Tracker *leak.Tracker
	Tensors *tensor.Fold
	Hosts   *coverage.Fold
}

func newMemory(c leak.Config) *Memory {
	m := &Memory{Tracker: leak.New(c), Tensors: tensor.New(tensor.Config{Keep: c.KeepEnded}), Hosts: coverage.New()}
	m.composite = newComposite(m.Hosts, m.Tensors, m.Tracker)
	return m
}

// Name returns that of the tracker.
func (m *Memory) Name() string { return m.Tracker.Name() }

// Describe implements prometheus.Collector.
func (m *Memory) Describe(to chan<- *prometheus.Desc) {
	m.Tensors.Describe(to)
	m.Tracker.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *Memory) Collect(to chan<- prometheus.Metric) {
	m.Tensors.Collect(to)
	m.Tracker.Collect(to)
}
