package coverage

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema/metric"
)

var (
	gpuInfo        = metric.Desc("gputap_gpu_info")
	gpuMemory      = metric.Desc("gputap_gpu_memory_bytes")
	librarySymbols = metric.Desc("gputap_library_symbols")
	unseenSymbols  = metric.Desc("gputap_unseen_functions")
)

// Describe implements prometheus.Collector.
func (f *Fold) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gpuInfo, gpuMemory, librarySymbols, unseenSymbols} {
		to <- d
	}
}

// scrape sends the metrics of one scrape. Names that are not UTF-8 may become the same label: the first one counts.
type scrape struct {
	to     chan<- prometheus.Metric
	seen   map[seriesKey]bool
	unseen map[snapshot.HostID]int
}

type seriesKey struct {
	of snapshot.HostID
	id string // UUID and bus, or path
}

// Collect implements prometheus.Collector.
func (f *Fold) Collect(to chan<- prometheus.Metric) {
	s := scrape{to, map[seriesKey]bool{}, map[snapshot.HostID]int{}}
	for _, h := range f.Report() {
		id := snapshot.HostID{Cluster: process.Label(h.Cluster), Host: process.Label(h.Host)}
		s.addGPUs(id, &h)
		s.addLibraries(id, &h)
		s.unseen[id] += 0
		for _, p := range h.Processes {
			s.unseen[id] += len(p.Outside)
		}
	}
	for id, n := range s.unseen {
		s.gauge(unseenSymbols, float64(n), id)
	}
}

func (s *scrape) addGPUs(id snapshot.HostID, h *Host) {
	for _, g := range h.GPUs {
		uuid, bus, ordinal := process.Label(g.UUID), process.Label(g.Bus), strconv.Itoa(int(g.Ordinal))
		if !s.first(id, uuid+" "+bus) {
			continue
		}
		s.gauge(gpuInfo, 1, id, ordinal, uuid, process.Label(g.Name), bus)
		if g.Bytes > 0 && s.first(id, uuid) {
			s.gauge(gpuMemory, float64(g.Bytes), id, ordinal, uuid)
		}
	}
}

func (s *scrape) addLibraries(id snapshot.HostID, h *Host) {
	for _, l := range h.Libraries {
		path := process.Label(l.Path)
		if !s.first(id, path) {
			continue // the same path in another mount namespace
		}
		s.gauge(librarySymbols, float64(l.Attached), id, path, "attached")
		s.gauge(librarySymbols, float64(len(l.Absent)), id, path, "absent")
		s.gauge(librarySymbols, float64(len(l.Failed)), id, path, "failed")
	}
}

func (s *scrape) first(of snapshot.HostID, id string) bool {
	k := seriesKey{of, id}
	again := s.seen[k]
	s.seen[k] = true
	return !again
}

func (s *scrape) gauge(desc *prometheus.Desc, v float64, of snapshot.HostID, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v,
		append([]string{of.Cluster, of.Host}, labels...)...)
}
