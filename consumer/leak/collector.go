package leak

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

var (
	liveBytes        = metric.Desc("gputap_cuda_memory_live_bytes")
	liveAllocations  = metric.Desc("gputap_cuda_memory_live_allocations")
	peakBytes        = metric.Desc("gputap_cuda_memory_peak_bytes")
	holders          = metric.Desc("gputap_cuda_memory_holders")
	reservedBytes    = metric.Desc("gputap_cuda_pool_reserved_bytes")
	allocatedBytes   = metric.Desc("gputap_cuda_memory_allocated_bytes_total")
	freedBytes       = metric.Desc("gputap_cuda_memory_freed_bytes_total")
	allocs           = metric.Desc("gputap_cuda_memory_allocs_total")
	frees            = metric.Desc("gputap_cuda_memory_frees_total")
	unfreedBytes     = metric.Desc("gputap_leak_unfreed_at_exit_bytes_total")
	apiErrors        = metric.Desc("gputap_cuda_api_errors_total")
	suspectedBytes   = metric.Desc("gputap_leak_suspected_bytes")
	growth           = metric.Desc("gputap_leak_growth_bytes_per_second")
	oldestAge        = metric.Desc("gputap_leak_oldest_allocation_age_seconds")
	verdicts         = metric.Desc("gputap_leak_verdicts")
	stateAllocations = metric.Desc("gputap_consumer_state_allocations")
	unexplained      = metric.Desc("gputap_leak_unexplained_bytes")
	incomplete       = metric.Desc("gputap_leak_state_incomplete")
	contradictions   = [numContradictions]*prometheus.Desc{
		unmatchedFree:   metric.Desc("gputap_leak_unmatched_frees_total"),
		reallocOverLive: metric.Desc("gputap_leak_realloc_over_live_total"),
		lateFree:        metric.Desc("gputap_leak_late_frees_total"),
		unknownContext:  metric.Desc("gputap_leak_unknown_contexts_total"),
	}
)

// Describe implements prometheus.Collector.
func (t *Tracker) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append(contradictions[:],
		liveBytes, liveAllocations, peakBytes, holders, reservedBytes, allocatedBytes, freedBytes, allocs, frees,
		unfreedBytes, apiErrors, suspectedBytes, growth, oldestAge, verdicts, unexplained, incomplete,
		process.DescProcesses, stateAllocations) {
		to <- d
	}
	t.book.Describe(to)
}

// Collect implements prometheus.Collector. It builds the metrics from a copy of the state; ended processes are not in
// it.
func (t *Tracker) Collect(to chan<- prometheus.Metric) {
	s := t.scrape()
	s.alerts(to)
	gauge := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	to <- s.processes
	gauge(stateAllocations, s.allocations, t.Name())
	for id, g := range s.gauges {
		labels := id.Labels(id.pid, id.class.String())
		if id.class == schema.ClassIPC || id.class == schema.ClassExternal || g.holders > 0 {
			gauge(holders, g.holders, labels...)
		}
		if owned(id.class, g.peak) {
			gauge(liveBytes, g.live.bytes, labels...)
			gauge(liveAllocations, g.live.allocations, labels...)
			gauge(peakBytes, g.peak, labels...)
		}
	}
	for id, n := range s.reserved {
		gauge(reservedBytes, n, id.Labels(id.pid)...)
	}
	s.collectTrends(to)
	for id, n := range s.cards {
		to <- prometheus.MustNewConstMetric(unexplained, prometheus.GaugeValue, float64(n.bytes), id.Cluster, id.Host,
			id.UUID)
	}
	for id, is := range s.incomplete {
		gauge(incomplete, is, id.Labels(id.pid)...)
	}
	for id, w := range s.workloads {
		if owned(id.class, w.allocs) {
			labels := id.Labels(id.class.String())
			count(allocatedBytes, w.allocated, labels...)
			count(freedBytes, w.freed, labels...)
			count(allocs, w.allocs, labels...)
			count(frees, w.frees, labels...)
			count(unfreedBytes, w.unfreed, labels...)
		}
	}
	for id, n := range s.failed {
		result := cmp.Or(ResultName(id.result), strconv.FormatUint(uint64(id.result), 10))
		count(apiErrors, n, id.Labels(id.symbol, result)...)
	}
	if s.unplaced > 0 {
		count(apiErrors, s.unplaced, process.Workload{}.Other().Labels(process.Other, process.Other)...)
	}
	for host, q := range s.totals {
		hostname := host.Host
		if host.Comm == process.Other {
			hostname = process.Other
		}
		for what, n := range q {
			count(contradictions[what], n, host.Cluster, hostname)
		}
	}
}

// collectTrends shows verdicts.
func (s *scrape) collectTrends(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, id processID) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, id.Labels(id.pid)...)
	}
	for id, g := range s.trends {
		gauge(suspectedBytes, float64(g.suspected), id)
		for state, n := range g.states {
			if n > 0 {
				to <- prometheus.MustNewConstMetric(verdicts, prometheus.GaugeValue, float64(n),
					id.Labels(id.pid, trend.State(state).String())...)
			}
		}
		if g.judged {
			gauge(growth, float64(g.perHour)/3600, id)
		}
		if g.oldest > 0 {
			gauge(oldestAge, g.oldest.Seconds(), id)
		}
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

// ResultName returns the driver's name of a CUresult, such as CUDA_ERROR_OUT_OF_MEMORY, or "" if this table lacks it.
func ResultName(code uint32) string { return results[code] }

// scrape is the data of one scrape, copied under the lock.
type scrape struct {
	processes   prometheus.Metric
	allocations uint64

	gauges     map[processID]gauge
	reserved   map[processID]uint64     // by pools, without a class
	incomplete map[processID]uint64     // without a GPU and a class
	trends     map[processID]trendGauge // without a class
	workloads  map[workloadID]*workload
	failed     map[failedID]uint64
	unplaced   uint64
	totals     map[process.Workload]quality          // by host
	cards      map[process.Workload]unexplainedBytes // by host and UUID
	above      map[string]uint64                     // series above the limit, by family
	alerts     func(chan<- prometheus.Metric)
}

// processID and failedID are the labels of one series. Processes with equal labels share the series.
type processID struct {
	workloadID
	pid string
}

func (a processID) compare(b processID) int {
	return cmp.Or(a.HostID.Compare(b.HostID), cmp.Compare(a.pid, b.pid), cmp.Compare(a.GPU, b.GPU),
		cmp.Compare(a.class, b.class), a.Compare(b.Workload))
}

type gauge struct {
	live    amount
	peak    uint64
	holders uint64
}

type failedID struct {
	process.Workload
	failure
}

type unexplainedBytes struct {
	at    time.Time
	bytes int64
}

func (t *Tracker) scrape() scrape {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := scrape{
		gauges: map[processID]gauge{}, reserved: map[processID]uint64{}, incomplete: map[processID]uint64{},
		workloads: map[workloadID]*workload{}, failed: map[failedID]uint64{}, unplaced: t.workloads.unplaced,
		trends: map[processID]trendGauge{}, totals: t.totals.Page(), cards: map[process.Workload]unexplainedBytes{},
		above: t.above, processes: t.table.Size(t.Name()), alerts: t.book.Metrics(),
	}
	for _, p := range t.table.All() {
		if !p.Ended && len(p.State.rows) > 0 {
			s.addProcess(p)
			s.addTrends(t, p)
		}
	}
	s.limitGauges()
	for _, w := range t.workloads.all() {
		s.addWorkload(w)
	}
	for _, m := range t.hosts {
		s.allocations += uint64(m.live)
		s.addCards(m)
	}
	s.limitCards()
	return s
}

func (s *scrape) addWorkload(w *workload) {
	id := w.page()
	if s.workloads[id] == nil {
		s.workloads[id] = &workload{}
	}
	s.workloads[id].add(w)
	for f, n := range w.failed {
		s.failed[failedID{id.Workload, f}] += n
	}
}

// pageOf returns the labels of a process without a GPU and a class.
func pageOf(p *proc) (id processID) {
	id.Workload = process.WorkloadOf(&p.Info).Page()
	id.pid = strconv.FormatUint(uint64(p.ID.PID), 10)
	return id
}

func (s *scrape) addProcess(p *proc) {
	id := pageOf(p)
	for i := range p.State.rows {
		r := &p.State.rows[i]
		of := id
		of.GPU, of.UUID, of.class = ordinal(r.gpu), process.Label(r.uuid), r.class
		s.addGauge(of, gauge{r.live, r.peak, r.holders})
	}
	for i := range p.State.pools {
		if q := &p.State.pools[i]; q.reserved.at != 0 {
			s.reserve(p, id, q)
		}
	}
	if len(s.incomplete) >= process.MaxSeries-1 {
		id = s.other("gputap_leak_state_incomplete")
	}
	var is uint64
	if evidence(p) != complete {
		is = 1
	}
	s.incomplete[id] = max(s.incomplete[id], is)
}

func (s *scrape) addGauge(id processID, more gauge) {
	g := s.gauges[id]
	g.live.bytes += more.live.bytes
	g.live.allocations += more.live.allocations
	g.peak += more.peak
	g.holders += more.holders
	s.gauges[id] = g
}

// reserve adds the reserved bytes of one pool.
func (s *scrape) reserve(p *proc, id processID, q *pool) {
	id.GPU = ordinal(q.gpu)
	for i := range p.State.rows {
		if r := &p.State.rows[i]; r.gpu == q.gpu && r.uuid != "" {
			id.UUID = process.Label(r.uuid)
		}
	}
	if _, known := s.reserved[id]; !known && len(s.reserved) >= process.MaxSeries-1 {
		id = s.other("gputap_cuda_pool_reserved_bytes")
	}
	s.reserved[id] += q.reserved.bytes
}

// other returns the labels of everything above the limit of a family, and counts that.
func (s *scrape) other(family string) processID {
	s.above[family]++
	return processID{workloadID: otherID(0)}
}

// Overflow reports, by family, how often a series was counted as other or left out since the fold was made.
func (t *Tracker) Overflow(see func(family string, times uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for family, times := range t.above {
		see(family, times)
	}
	see("gputap_cuda_memory_allocated_bytes_total", t.workloads.above)
	see("gputap_cuda_api_errors_total", t.workloads.unplaced)
	see("gputap_leak_unmatched_frees_total", t.totals.Overflow())
	t.book.Overflow(see)
}

// limitGauges keeps the series with the most live bytes and sums the others.
func (s *scrape) limitGauges() {
	if len(s.gauges) <= process.MaxSeries {
		return
	}
	all := slices.SortedFunc(maps.Keys(s.gauges), func(a, b processID) int {
		return cmp.Or(cmp.Compare(s.gauges[b].live.bytes, s.gauges[a].live.bytes), a.compare(b))
	})
	for _, id := range all[process.MaxSeries-numOther:] {
		s.above["gputap_cuda_memory_live_bytes"]++
		g := s.gauges[id]
		delete(s.gauges, id)
		s.addGauge(processID{workloadID: otherID(id.class)}, g)
	}
}
