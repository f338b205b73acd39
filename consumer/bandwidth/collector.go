package bandwidth

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// series is the labels of one sum. The family of busy seconds has no mode; its copies are synchronous.
type series struct {
	process.Workload
	row   schema.Direction // or rowSet
	async bool
}

// Other returns the series of comm="other" with the same row and mode.
func (s series) Other() series { return series{s.Workload.Other(), s.row, s.async} }

// Page returns the series as metrics show it.
func (s series) Page() series { return series{s.Workload.Page(), s.row, s.async} }

// Compare orders by host, then by labels.
func (s series) Compare(to series) int {
	sync := cmp.Compare(to.mode(), s.mode()) // before async
	return cmp.Or(s.Workload.Compare(to.Workload), cmp.Compare(s.row, to.row), sync)
}

func (s series) mode() string { return modeOf(s.async) }

func modeOf(async bool) string {
	if async {
		return "async"
	}
	return "sync"
}

var kindWords = [schema.NumDirections]string{
	schema.HtoD: "h2d", schema.DtoH: "d2h", schema.DtoD: "d2d", schema.HtoH: "h2h", schema.PtoP: "p2p",
	schema.DirDefault: "default",
}

var (
	copiedBytes  = metric.Desc("gputap_cuda_memcpy_bytes_total")
	copyCalls    = metric.Desc("gputap_cuda_memcpy_calls_total")
	setBytes     = metric.Desc("gputap_cuda_memset_bytes_total")
	setCalls     = metric.Desc("gputap_cuda_memset_calls_total")
	busySeconds  = metric.Desc("gputap_cuda_memcpy_busy_seconds_total")
	endedBytes   = metric.Desc("gputap_cuda_memcpy_ended_bytes_total")
	endedSeconds = metric.Desc("gputap_cuda_memcpy_ended_seconds_total")
	waitSeconds  = metric.Desc("gputap_cuda_sync_seconds_total")
	waitCalls    = metric.Desc("gputap_cuda_sync_calls_total")
)

// Describe implements prometheus.Collector.
func (m *Meter) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		process.DescProcesses, copiedBytes, copyCalls, busySeconds, setBytes, setCalls, waitSeconds, waitCalls,
		copySizes, callSeconds, throughput, endedBytes, endedSeconds,
	} {
		to <- d
	}
}

// Overflow reports, by family, how often a series was counted as other since the fold was made.
func (m *Meter) Overflow(see func(family string, times uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	see("gputap_cuda_memcpy_bytes_total", m.moves.Overflow())
	see("gputap_cuda_memcpy_ended_bytes_total", m.ended.Overflow())
	see("gputap_cuda_sync_calls_total", m.waits.Overflow())
	see("gputap_cuda_memcpy_size_bytes", m.sizes.Overflow())
	see("gputap_cuda_memcpy_throughput_bytes_per_second", m.rates.Overflow())
}

// Collect implements prometheus.Collector. It copies the state under the lock and builds the metrics without it.
func (m *Meter) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	moves, waits, ended := m.moves.Page(), m.waits.Page(), m.ended.Page()
	sizes, rates := m.sizes.Page(), m.rates.Page()
	processes := m.processes.Size(m.Name())
	m.mu.Unlock()
	to <- processes
	send := func(d *prometheus.Desc, v float64, labels []string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for k, s := range moves {
		if k.row == rowSet {
			send(setBytes, float64(s.bytes), k.Labels(k.mode()))
			send(setCalls, float64(s.calls), k.Labels(k.mode()))
			continue
		}
		kind := kindWords[k.row]
		if !k.async {
			send(busySeconds, float64(s.busy)/1e9, k.Labels(kind))
		}
		send(copiedBytes, float64(s.bytes), k.Labels(kind, k.mode()))
		send(copyCalls, float64(s.calls), k.Labels(kind, k.mode()))
	}
	for k, s := range ended {
		send(endedBytes, float64(s.bytes), k.Labels(kindWords[k.row]))
		send(endedSeconds, float64(s.busy)/1e9, k.Labels(kindWords[k.row]))
	}
	for k, s := range sizes {
		to <- s.bytes.Metric(copySizes, 1, bytePowers, k.comm, kindWords[k.row], modeOf(k.async))
		to <- s.seconds.Metric(callSeconds, 1e9, secondPowers, k.comm, kindWords[k.row], modeOf(k.async))
	}
	for k, r := range rates {
		to <- r.Metric(throughput, 1, speedPowers, k.Cluster, k.Host, k.gpu, k.uuid, kindWords[k.row])
	}
	for k, w := range waits {
		send(waitSeconds, float64(w.NS)/1e9, k.Labels())
		send(waitCalls, float64(w.Calls), k.Labels())
	}
}
