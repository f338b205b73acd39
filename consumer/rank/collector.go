package rank

import "github.com/prometheus/client_golang/prometheus"

var (
	descWindows = prometheus.NewDesc("gputap_anomaly_rank_windows_total",
		"Windows of two seconds of the ranks of jobs: summarized, or incomplete because events were lost.",
		[]string{"result"}, nil)
	descIgnored = prometheus.NewDesc("gputap_anomaly_ranks_ignored_total",
		"Threads of ranks in batches that were ignored because there are too many processes.", nil, nil)
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
