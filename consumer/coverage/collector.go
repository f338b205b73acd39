package coverage

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
)

var (
	gpuInfo = prometheus.NewDesc("gputap_gpu_info", "GPUs of a host. The value is always 1.",
		[]string{"hostname", "gpu", "UUID", "model_name", "pci_bus_id"}, nil)
	librarySymbols = prometheus.NewDesc("gputap_library_symbols",
		"Driver functions that gputap knows, by library and state of the probe: attached, absent or failed.",
		[]string{"hostname", "library", "state"}, nil)
	unseenSymbols = prometheus.NewDesc("gputap_unseen_functions",
		"Driver functions without a probe that processes looked up and that handle memory or submit work.",
		[]string{"hostname"}, nil)
)

// Describe implements prometheus.Collector.
func (f *Fold) Describe(ch chan<- *prometheus.Desc) {
	ch <- gpuInfo
	ch <- librarySymbols
	ch <- unseenSymbols
}

// maxSeries is the limit of series per metric family.
const maxSeries = 20_000

// Collect implements prometheus.Collector.
func (f *Fold) Collect(ch chan<- prometheus.Metric) {
	left := maxSeries
	seen, unseen := map[[3]string]bool{}, map[string]int{} // hosts of one name in two clusters share a series
	for _, h := range f.Report() {
		host := process.Label(h.Host)
		for _, g := range h.GPUs {
			uuid, bus := process.Label(g.UUID), process.Label(g.Bus)
			if key := [3]string{host, uuid, bus}; !seen[key] && left > 0 {
				seen[key] = true
				left--
				ch <- gauge(gpuInfo, 1, host, strconv.Itoa(int(g.Ordinal)), uuid, process.Label(g.Name), bus)
			}
		}
		unseen[host] += 0
		for _, p := range h.Processes {
			unseen[host] += len(p.Outside)
		}
		for _, l := range h.Libraries {
			path := process.Label(l.Path)
			if key := [3]string{host, path}; seen[key] || left <= 0 {
				continue // the same path in another mount namespace
			}
			seen[[3]string{host, path}] = true
			left--
			ch <- gauge(librarySymbols, float64(l.Attached), host, path, "attached")
			ch <- gauge(librarySymbols, float64(len(l.Absent)), host, path, "absent")
			ch <- gauge(librarySymbols, float64(len(l.Failed)), host, path, "failed")
		}
	}
	for host, n := range unseen {
		ch <- gauge(unseenSymbols, float64(n), host)
	}
}

func gauge(desc *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
}
