package attach

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema/metric"
)

type metrics struct {
	probes, stepped, libraries, sideband prometheus.Gauge
	attachFailed, sidebandLost           prometheus.Counter
	attachTime                           prometheus.Histogram
}

func newMetrics() *metrics {
	gauge := func(name string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(metric.Opts("gputap_producer_"+name, nil)))
	}
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(metric.Opts("gputap_producer_"+name, nil)))
	}
	return &metrics{
		probes:       gauge("attached_probes"),
		stepped:      gauge("stepped_probes"),
		libraries:    gauge("attached_libraries"),
		attachFailed: counter("attach_failures_total"),
		sideband:     gauge("sideband"),
		sidebandLost: counter("sideband_lost_total"),
		attachTime: prometheus.NewHistogram(metric.HistogramOpts("gputap_producer_attach_seconds", nil,
			.001, .0025, .005, .01, .015, .02, .03, .05, .1, 1)),
	}
}

// Collect sends the metrics of the probes.
func (p *Probes) Collect(out chan<- prometheus.Metric) {
	m := p.metrics
	for _, c := range []prometheus.Collector{
		m.probes, m.stepped, m.libraries, m.attachFailed, m.sideband, m.sidebandLost, m.attachTime,
	} {
		c.Collect(out)
	}
}
