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
		"Bytes that a running process holds. "+
			"Kinds pinned and registered are host memory, all others GPU memory.", processLabels, nil)
	holders = prometheus.NewDesc("gputap_cuda_memory_holders",
		"Pieces of memory that a running process opened and did not close. "+
			"Their bytes count in the process that allocated them.", processLabels, nil)
	reservedBytes = prometheus.NewDesc("gputap_cuda_pool_reserved_bytes",
		"Bytes reserved by the memory pools of a running process, "+
			"as the driver last reported them to the process.", poolLabels, nil)
	unexplained = prometheus.NewDesc("gputap_leak_unexplained_bytes",
		"Used bytes of a GPU minus live bytes, at the latest cuMemGetInfo call.", cardLabels, nil)
	liveAllocations = prometheus.NewDesc("gputap_cuda_memory_live_allocations",
		"Live allocations of a running process.", processLabels, nil)
	peakBytes = prometheus.NewDesc("gputap_cuda_memory_peak_bytes",
		"Largest number of bytes that a running process held at once.", processLabels, nil)
	allocatedBytes = prometheus.NewDesc("gputap_cuda_memory_allocated_bytes_total",
		"Bytes allocated. Allocated bytes equal freed plus live plus unfreed-at-exit bytes.", workloadLabels, nil)
	freedBytes = prometheus.NewDesc("gputap_cuda_memory_freed_bytes_total",
		"Bytes freed.", workloadLabels, nil)
	allocs = prometheus.NewDesc("gputap_cuda_memory_allocs_total",
		"Successful allocations.", workloadLabels, nil)
	frees = prometheus.NewDesc("gputap_cuda_memory_frees_total",
		"Freed allocations.", workloadLabels, nil)
	apiErrors = prometheus.NewDesc("gputap_cuda_api_errors_total",
		"Failed memory calls of the CUDA driver API, by CUresult.", errorLabels, nil)
	unfreedBytes = prometheus.NewDesc("gputap_leak_unfreed_at_exit_bytes_total",
		"Bytes that were live when their process ended or replaced its image.", workloadLabels, nil)
	incomplete = prometheus.NewDesc("gputap_leak_state_incomplete",
		"1 if the numbers of a running process are incomplete: events were lost, or it ran before gputap attached.",
		evidenceLabels, nil)
	unmatchedFrees = prometheus.NewDesc("gputap_leak_unmatched_frees_total",
		"Successful frees of memory whose allocation was not seen.", hostLabels, nil)
	reallocOverLive = prometheus.NewDesc("gputap_leak_realloc_over_live_total",
		"Allocations at an address that was live. "+
			"Minus the late frees, this is the number of frees that were never seen.", hostLabels, nil)
	unknownContexts = prometheus.NewDesc("gputap_leak_unknown_contexts_total",
		"CUDA context calls whose effect on memory is unknown. Live bytes may be too high.", hostLabels, nil)
	lateFrees = prometheus.NewDesc("gputap_leak_late_frees_total",
		"Frees whose record arrived after the next allocation of the same address.", hostLabels, nil)
)

// Describe implements prometheus.Collector.
func (t *Tracker) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		liveBytes, liveAllocations, peakBytes, allocatedBytes, freedBytes, allocs, frees, apiErrors, unfreedBytes,
		incomplete, unmatchedFrees, reallocOverLive, lateFrees, holders, reservedBytes, unexplained, unknownContexts,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It builds the metrics from a copy of the state; ended processes are not in
// it.
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

// owned reports whether class c has series of owned memory. Holders and multicast objects have none. The class "" has
// them once a process allocated memory of an unknown class; otherwise it holds only failed calls.
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

// results names the CUresults that memory calls return in practice. These are the driver's codes; the runtime library
// uses other names (2 is cudaErrorMemoryAllocation there).
var results = map[uint32]string{
	1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 3: "CUDA_ERROR_NOT_INITIALIZED",
	4: "CUDA_ERROR_DEINITIALIZED", 46: "CUDA_ERROR_DEVICE_UNAVAILABLE", 100: "CUDA_ERROR_NO_DEVICE",
	101: "CUDA_ERROR_INVALID_DEVICE", 201: "CUDA_ERROR_INVALID_CONTEXT", 205: "CUDA_ERROR_MAP_FAILED",
	206: "CUDA_ERROR_UNMAP_FAILED", 208: "CUDA_ERROR_ALREADY_MAPPED", 211: "CUDA_ERROR_NOT_MAPPED",
	214: "CUDA_ERROR_ECC_UNCORRECTABLE", 304: "CUDA_ERROR_OPERATING_SYSTEM", 400: "CUDA_ERROR_INVALID_HANDLE",
	401: "CUDA_ERROR_ILLEGAL_STATE", 700: "CUDA_ERROR_ILLEGAL_ADDRESS", 709: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	716: "CUDA_ERROR_MISALIGNED_ADDRESS", 719: "CUDA_ERROR_LAUNCH_FAILED", 800: "CUDA_ERROR_NOT_PERMITTED",
	801: "CUDA_ERROR_NOT_SUPPORTED", 802: "CUDA_ERROR_SYSTEM_NOT_READY",
	900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 901: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	906: "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", 999: "CUDA_ERROR_UNKNOWN",
}

func resultName(code uint32) string {
	if name, ok := results[code]; ok {
		return name
	}
	return strconv.FormatUint(uint64(code), 10)
}
