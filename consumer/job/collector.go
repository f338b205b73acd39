package job

import "github.com/prometheus/client_golang/prometheus"

var (
	descJobs = prometheus.NewDesc("gputap_anomaly_jobs", "Jobs whose ranks send summaries, by state.",
		[]string{"state"}, nil)
	descIgnored = prometheus.NewDesc("gputap_anomaly_job_ranks_ignored_total",
		"Ranks in summaries that were ignored because there are too many.", nil, nil)
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
	states, ignored, alerts := map[string]int{}, f.ignored, f.book.Metrics()
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
