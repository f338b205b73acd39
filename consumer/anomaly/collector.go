package anomaly

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
)

// Describe implements prometheus.Collector.
func (d *Detector) Describe(to chan<- *prometheus.Desc) {
	to <- process.DescProcesses
	d.book.Describe(to)
}

// Overflow reports, by family, how often a series was counted as other since the fold was made.
func (d *Detector) Overflow(see func(family string, times uint64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book.Overflow(see)
}

// Collect implements prometheus.Collector.
func (d *Detector) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	send, processes := d.book.Metrics(), d.table.Size(d.Name())
	d.mu.Unlock()
	to <- processes
	send(to)
}
