package alert

import (
	"cmp"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema/metric"
)

const (
	maxOthers   = 50              // rules and severities above the limit of series
	showCleared = 5 * time.Minute // how long the metrics show a cleared alert as 0
)

// raised identifies a count of alerts.
type raised struct {
	process.Workload
	rule, severity string
}

func raisedOf(a *Alert) raised {
	w := process.Workload{
		HostID: a.HostID(), UUID: process.Label(a.GPU), Pod: process.Label(a.Pod),
		Container: process.Label(a.Container), Unit: process.Label(a.Unit), User: process.Label(a.User),
		Job: process.Label(a.Job), Comm: process.Label(a.Comm),
	}
	return raised{w, a.Rule, a.Severity}
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

type families struct{ active, events, suppressed *prometheus.Desc }

func newFamilies(family string) families {
	return families{
		active:     metric.Desc("gputap_" + family + "_active"),
		events:     metric.Desc("gputap_" + family + "_events_total"),
		suppressed: metric.Desc("gputap_" + family + "_suppressed_total"),
	}
}

// Describe implements prometheus.Collector.
func (b *Book) Describe(to chan<- *prometheus.Desc) {
	to <- b.families.active
	to <- b.families.events
	to <- b.families.suppressed
}

// Overflow reports how often an alert was counted as other. The fold calls it with its lock held.
func (b *Book) Overflow(see func(family string, times uint64)) {
	see("gputap_"+b.cfg.Family+"_events_total", b.raised.Overflow())
}

// Metrics returns a function that sends the metrics as they are now. The fold calls Metrics with its lock held, and
// the function without it.
func (b *Book) Metrics() (send func(to chan<- prometheus.Metric)) {
	active, counts, findings := b.active(), b.raised.Page(), maps.Clone(b.suppressed)
	return func(to chan<- prometheus.Metric) {
		for r, n := range active {
			to <- prometheus.MustNewConstMetric(b.families.active, prometheus.GaugeValue, float64(n),
				r.Labels(r.rule, r.severity)...)
		}
		for r, n := range counts {
			to <- prometheus.MustNewConstMetric(b.families.events, prometheus.CounterValue, float64(n),
				r.Labels(r.rule, r.severity)...)
		}
		for s, n := range findings {
			to <- prometheus.MustNewConstMetric(b.families.suppressed, prometheus.CounterValue, float64(n), s.rule,
				s.reason)
		}
	}
}

// active counts the alerts that fire. Series above the limit count as comm="other".
func (b *Book) active() map[raised]int {
	series := process.NewSeries[raised, process.Count](maxOthers)
	for _, id := range sortedHosts(b.hosts) {
		p := b.hosts[id]
		for _, e := range p.entries {
			switch {
			case e.State == Firing:
				*series.At(raisedOf(&e.Alert))++
			case p.now.Sub(e.Time) < showCleared:
				series.At(raisedOf(&e.Alert))
			}
		}
	}
	page := map[raised]int{}
	for r, n := range series.Page() {
		page[r] = int(n)
	}
	return page
}
