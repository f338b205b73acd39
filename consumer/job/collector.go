package job

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema/metric"
)

var (
	descJobs    = metric.Desc("gputap_anomaly_jobs")
	descIgnored = metric.Desc("gputap_anomaly_job_ranks_ignored_total")
)

// Describe implements prometheus.Collector.
func (f *Fold) Describe(to chan<- *prometheus.Desc) {
	f.book.Describe(to)
	to <- descJobs
	to <- descIgnored
}

// Collect implements prometheus.Collector.
func (f *Fold) Collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	states := map[string]int{Unknown: 0, Small: 0, Straggler: 0, Incomplete: 0, Running: 0}
	ignored, alerts := f.ignored, f.book.Metrics()
	for _, j := range f.jobs {
		states[j.state()]++
	}
	f.mu.Unlock()
	alerts(to)
	for state, n := range states {
		to <- prometheus.MustNewConstMetric(descJobs, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(descIgnored, prometheus.CounterValue, float64(ignored))
}
