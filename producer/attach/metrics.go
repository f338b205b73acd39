package attach

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are written by the goroutine that attaches and by the side-band, and read by the scrape.
type metrics struct {
	probes       atomic.Int64
	stepped      atomic.Int64
	libraries    atomic.Int64
	attachFailed atomic.Uint64
	sideband     atomic.Int64
	sidebandLost atomic.Uint64
	attachTime   prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{attachTime: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "gputap_producer_attach_seconds",
		Help:    "Time from the mapping of a new driver library to its last probe.",
		Buckets: []float64{.001, .0025, .005, .01, .015, .02, .03, .05, .1, 1},
	})}
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gputap_producer_"+name, help, nil, nil)
}

var (
	descProbes       = desc("attached_probes", "Probed functions of all attached libraries.")
	descStepped      = desc("stepped_probes", "Probes that Linux single-steps: about ten times as slow.")
	descLibraries    = desc("attached_libraries", "Driver library files with probes.")
	descAttachFailed = desc("attach_failures_total", "Libraries that could not be attached.")
	descSideband     = desc("sideband", "1 while side-band records report new mappings; 0 while only scans find them.")
	descSideLost     = desc("sideband_lost_total", "Side-band records lost for lack of room; each loss causes a scan.")
)

// Collect sends the metrics of the probes.
func (p *Probes) Collect(out chan<- prometheus.Metric) {
	m := p.metrics
	gauge := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter := func(d *prometheus.Desc, v uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(descProbes, m.probes.Load())
	gauge(descStepped, m.stepped.Load())
	gauge(descLibraries, m.libraries.Load())
	counter(descAttachFailed, m.attachFailed.Load())
	gauge(descSideband, m.sideband.Load())
	counter(descSideLost, m.sidebandLost.Load())
	m.attachTime.Collect(out)
}
