package rank

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema/metric"
)

var (
	descWindows = metric.Desc("gputap_anomaly_rank_windows_total")
	descIgnored = metric.Desc("gputap_anomaly_ranks_ignored_total")
)

// Describe implements prometheus.Collector.
func (f *Fold) Describe(to chan<- *prometheus.Desc) {
	to <- descWindows
	to <- descIgnored
}

// Collect implements prometheus.Collector.
func (f *Fold) Collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	c := f.counters
	f.mu.Unlock()
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	counter(descWindows, c.summarized, "summarized")
	counter(descWindows, c.incomplete, "incomplete")
	counter(descIgnored, c.ignored)
}
