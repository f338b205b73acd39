package anomaly

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// maxSeries is the limit of alert series. Everything above has comm="other".
const maxSeries = 2000

type raisedID struct{ hostname, container, comm, rule, severity string }

// raisedBy identifies a count of alerts. State is kept per cluster and host; labels have no cluster. The counts of
// comm="other" belong to no host.
type raisedBy struct {
	snapshot.HostID
	raisedID
}

type suppressedID struct{ rule, reason string }

var (
	eventsTotal = prometheus.NewDesc("gputap_anomaly_events_total",
		"Alerts raised by rule.", []string{"hostname", "container", "comm", "rule", "severity"}, nil)
	suppressedTotal = prometheus.NewDesc("gputap_anomaly_suppressed_total",
		"Findings that raised no alert because of a cooldown, warm-up or limit.", []string{"rule", "reason"}, nil)
)

func (d *Detector) countRaised(a *Alert) {
	id := raisedBy{
		a.host(),
		raisedID{process.Label(a.Host), process.Label(a.Container), process.Label(a.Comm), a.Rule, a.Severity},
	}
	d.count(id, 1)
}

func (d *Detector) count(id raisedBy, alerts uint64) {
	// reserves one series of comm="other" per rule
	if _, known := d.raised[id]; !known && len(d.raised) >= maxSeries-2 {
		d.others[raisedID{comm: "other", rule: id.rule, severity: id.severity}] += alerts
		return
	}
	d.raised[id] += alerts
}

// Describe implements prometheus.Collector.
func (d *Detector) Describe(to chan<- *prometheus.Desc) {
	to <- eventsTotal
	to <- suppressedTotal
}

// Collect implements prometheus.Collector.
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
