package leak

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema"
)

var (
	workloadLabels = []string{"hostname", "gpu", "UUID", "container", "comm", "kind"}
	processLabels  = []string{"hostname", "gpu", "UUID", "container", "comm", "pid", "kind"}
	errorLabels    = []string{"hostname", "gpu", "UUID", "container", "comm", "api", "error"}
	evidenceLabels = []string{"hostname", "container", "comm", "pid"}
	poolLabels     = []string{"hostname", "gpu", "UUID", "container", "comm", "pid"}
	cardLabels     = []string{"hostname", "UUID"}
	hostLabels     = []string{"hostname"}
)

var (
	liveBytes = prometheus.NewDesc("gputap_cuda_memory_live_bytes",
		"Memory that a running process holds now. kinds pinned and registered are host memory.", processLabels, nil)
	holders = prometheus.NewDesc("gputap_cuda_memory_holders",
		"Memory that a running process opened and did not close. Its bytes are counted where it was made.", processLabels, nil)
	reservedBytes = prometheus.NewDesc("gputap_cuda_pool_reserved_bytes",
		"What the memory pools of a running process have reserved, as the driver last told the process.", poolLabels, nil)
	unexplained = prometheus.NewDesc("gputap_leak_unexplained_bytes",
		"Used memory of a GPU, when a process last asked the driver, less what was live there then.", cardLabels, nil)
	liveAllocations = prometheus.NewDesc("gputap_cuda_memory_live_allocations",
		"Allocations that a running process holds now.", processLabels, nil)
	peakBytes = prometheus.NewDesc("gputap_cuda_memory_peak_bytes",
		"The most memory that a running process held at once.", processLabels, nil)
	allocatedBytes = prometheus.NewDesc("gputap_cuda_memory_allocated_bytes_total",
		"Memory allocated. Allocated is freed, live and unfreed at exit together.", workloadLabels, nil)
	freedBytes = prometheus.NewDesc("gputap_cuda_memory_freed_bytes_total",
		"Memory freed by the program.", workloadLabels, nil)
	allocs = prometheus.NewDesc("gputap_cuda_memory_allocs_total",
		"Allocations that succeeded.", workloadLabels, nil)
	frees = prometheus.NewDesc("gputap_cuda_memory_frees_total",
		"Allocations that the program freed.", workloadLabels, nil)
	apiErrors = prometheus.NewDesc("gputap_cuda_api_errors_total",
		"Memory calls of the driver API that failed, by the CUresult they returned.", errorLabels, nil)
	unfreedBytes = prometheus.NewDesc("gputap_leak_unfreed_at_exit_bytes_total",
		"Memory that was live when its process ended or replaced its image.", workloadLabels, nil)
	incomplete = prometheus.NewDesc("gputap_leak_state_incomplete",
		"1 when events of a running process's lifetime were lost or it ran before gputap was attached: mask its numbers.",
		evidenceLabels, nil)
	unmatchedFrees = prometheus.NewDesc("gputap_leak_unmatched_frees_total",
		"Successful frees of memory whose allocation was not seen.", hostLabels, nil)
	reallocOverLive = prometheus.NewDesc("gputap_leak_realloc_over_live_total",
		"Allocations at an address that was live. Less the late frees, lives whose end was never seen.", hostLabels, nil)
	unknownContexts = prometheus.NewDesc("gputap_leak_unknown_contexts_total",
		"Calls on CUDA contexts of which it is not known what they ended: live memory may be too high.", hostLabels, nil)
	lateFrees = prometheus.NewDesc("gputap_leak_late_frees_total",
		"Frees that arrived after their address was allocated anew.", hostLabels, nil)
)

// Describe is part of prometheus.Collector.
func (t *Tracker) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		liveBytes, liveAllocations, peakBytes, allocatedBytes, freedBytes, allocs, frees, apiErrors, unfreedBytes,
		incomplete, unmatchedFrees, reallocOverLive, lateFrees, holders, reservedBytes, unexplained, unknownContexts,
	} {
		to <- d
	}
}

// Collect is part of prometheus.Collector. It makes the metrics of this scrape from a copy: a
// process that ended is simply not in it.
func (t *Tracker) Collect(to chan<- prometheus.Metric) {
	s := t.scrape()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v uint64, values ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(v), values...)
	}
	for _, g := range s.gauges {
		l := &g.labels
		values := []string{l.hostname, l.gpu, l.uuid, l.container, l.comm, g.pid, l.class.String()}
		if g.class == schema.ClassIPC || g.class == schema.ClassExternal || g.holders > 0 {
			send(holders, prometheus.GaugeValue, g.holders, values...)
		}
		if !owned(g.class, g.peak) {
			continue
		}
		send(liveBytes, prometheus.GaugeValue, g.live.bytes, values...)
		send(liveAllocations, prometheus.GaugeValue, g.live.allocations, values...)
		send(peakBytes, prometheus.GaugeValue, g.peak, values...)
	}
	for id, n := range s.reserved {
		send(reservedBytes, prometheus.GaugeValue, n, id.hostname, id.gpu, id.uuid, id.container, id.comm, id.pid)
	}
	for id, n := range s.cards {
		to <- prometheus.MustNewConstMetric(unexplained, prometheus.GaugeValue, float64(n.bytes), id.hostname, id.uuid)
	}
	for id, is := range s.incomplete {
		send(incomplete, prometheus.GaugeValue, is, id.hostname, id.container, id.comm, id.pid)
	}
	for _, w := range s.workloads {
		if !owned(w.class, w.allocs) {
			continue
		}
		values := []string{w.hostname, w.gpu, w.uuid, w.container, w.comm, w.class.String()}
		send(allocatedBytes, prometheus.CounterValue, w.allocated, values...)
		send(freedBytes, prometheus.CounterValue, w.freed, values...)
		send(allocs, prometheus.CounterValue, w.allocs, values...)
		send(frees, prometheus.CounterValue, w.frees, values...)
		send(unfreedBytes, prometheus.CounterValue, w.unfreed, values...)
	}
	for id, n := range s.failed {
		l := &id.labels
		send(apiErrors, prometheus.CounterValue, n,
			l.hostname, l.gpu, l.uuid, l.container, l.comm, id.symbol, resultName(id.result))
	}
	if s.unplaced > 0 {
		send(apiErrors, prometheus.CounterValue, s.unplaced, "", "", "", "", other, other, other)
	}
	for hostname, q := range s.qualities {
		send(unmatchedFrees, prometheus.CounterValue, q.unmatchedFrees, hostname)
		send(reallocOverLive, prometheus.CounterValue, q.reallocOverLive, hostname)
		send(lateFrees, prometheus.CounterValue, q.lateFrees, hostname)
		send(unknownContexts, prometheus.CounterValue, q.unknownContexts, hostname)
	}
}

// owned says which classes a process can own memory of: the others name what was opened, or calls
// without a class, which have failed calls at most. What has memory of no known class is shown.
func owned(c schema.MemClass, ever uint64) bool {
	switch c {
	case schema.ClassIPC, schema.ClassExternal, schema.ClassMulticast:
		return false
	case schema.ClassNone:
		return ever > 0
	}
	return true
}

func pidText(pid uint32) string { return strconv.FormatUint(uint64(pid), 10) }
