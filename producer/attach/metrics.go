package attach

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	probes, stepped, libraries, sideband prometheus.Gauge
	attachFailed, sidebandLost           prometheus.Counter
	attachTime                           prometheus.Histogram
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "gputap_producer_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "gputap_producer_" + name, Help: help})
	}
	return &metrics{
		probes:       gauge("attached_probes", "Probed functions of all attached libraries."),
		stepped:      gauge("stepped_probes", "Probes that Linux single-steps: about ten times as slow."),
		libraries:    gauge("attached_libraries", "Library files with probes: of the driver, and of PyTorch."),
		attachFailed: counter("attach_failures_total", "Libraries that could not be attached."),
		sideband: gauge("sideband",
			"1 while side-band records report new mappings; 0 while only scans find them."),
		sidebandLost: counter("sideband_lost_total",
			"Side-band records lost for lack of room; each loss causes a scan."),
		attachTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gputap_producer_attach_seconds",
			Help:    "Time from the mapping of a new library to its last probe.",
			Buckets: []float64{.001, .0025, .005, .01, .015, .02, .03, .05, .1, 1},
		}),
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
