package anomaly

import (
	"cmp"
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
)

// raised identifies a count of alerts, without a GPU.
type raised struct {
	process.Workload
	rule, severity string
}

// Other returns the series of comm="other" of the same rule.
func (r raised) Other() raised { return raised{r.Workload.Other(), r.rule, r.severity} }

// Page returns the series as metrics show it.
func (r raised) Page() raised { return raised{r.Workload.Page(), r.rule, r.severity} }

// Compare orders by host, then by labels.
func (r raised) Compare(to raised) int {
	return cmp.Or(r.Workload.Compare(to.Workload), cmp.Compare(r.rule, to.rule), cmp.Compare(r.severity, to.severity))
}

// suppressed identifies a count of findings that raised no alert.
type suppressed struct{ rule, reason string }

func (s suppressed) compare(to suppressed) int {
	return cmp.Or(cmp.Compare(s.rule, to.rule), cmp.Compare(s.reason, to.reason))
}

var (
	eventsTotal = prometheus.NewDesc("gputap_anomaly_events_total",
		"Alerts raised by rule.", []string{"hostname", "container", "comm", "rule", "severity"}, nil)
	suppressedTotal = prometheus.NewDesc("gputap_anomaly_suppressed_total",
		"Findings that raised no alert because of a cooldown, warm-up or limit.", []string{"rule", "reason"}, nil)
)

// Describe implements prometheus.Collector.
func (d *Detector) Describe(to chan<- *prometheus.Desc) {
	to <- eventsTotal
	to <- suppressedTotal
}

// Collect implements prometheus.Collector.
func (d *Detector) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	alerts := d.raised.Page()
	findings := maps.Clone(d.suppressed)
	d.mu.Unlock()
	for r, n := range alerts {
		to <- prometheus.MustNewConstMetric(eventsTotal, prometheus.CounterValue, float64(n),
			r.Host, r.Container, r.Comm, r.rule, r.severity)
	}
	for s, n := range findings {
		to <- prometheus.MustNewConstMetric(suppressedTotal, prometheus.CounterValue, float64(n), s.rule, s.reason)
	}
}
