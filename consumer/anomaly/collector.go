package anomaly

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// maxSeries bounds the series of alerts; what exceeds it has comm="other".
const maxSeries = 2000

type raisedID struct{ hostname, container, comm, rule, severity string }

// raisedBy is what alerts are counted under: labels, and the host as it is named, for state belongs to hosts and
// labels do not tell clusters apart. No host owns what counts as other.
type raisedBy struct {
	snapshot.HostID
	raisedID
}

type suppressedID struct{ rule, reason string }

var (
	eventsTotal = prometheus.NewDesc("gputap_anomaly_events_total",
		"Alerts raised.", []string{"hostname", "container", "comm", "rule", "severity"}, nil)
	suppressedTotal = prometheus.NewDesc("gputap_anomaly_suppressed_total",
		"Findings that a guard held back.", []string{"rule", "reason"}, nil)
)

func (d *Detector) countRaised(a *Alert) {
	id := raisedBy{
		a.host(),
		raisedID{process.Label(a.Host), process.Label(a.Container), process.Label(a.Comm), a.Rule, a.Severity},
	}
	d.count(id, 1)
}

func (d *Detector) count(id raisedBy, alerts uint64) {
	if _, known := d.raised[id]; !known && len(d.raised) >= maxSeries-2 { // one place a rule
		d.others[raisedID{comm: "other", rule: id.rule, severity: id.severity}] += alerts
		return
	}
	d.raised[id] += alerts
}

// Describe is part of prometheus.Collector.
func (d *Detector) Describe(to chan<- *prometheus.Desc) {
	to <- eventsTotal
	to <- suppressedTotal
}

// Collect is part of prometheus.Collector.
func (d *Detector) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	raised, suppressed := maps.Clone(d.others), maps.Clone(d.suppressed)
	for id, n := range d.raised {
		raised[id.raisedID] += n
	}
	d.mu.Unlock()
	for id, n := range raised {
		to <- prometheus.MustNewConstMetric(eventsTotal, prometheus.CounterValue, float64(n),
			id.hostname, id.container, id.comm, id.rule, id.severity)
	}
	for id, n := range suppressed {
		to <- prometheus.MustNewConstMetric(suppressedTotal, prometheus.CounterValue, float64(n), id.rule, id.reason)
	}
}
