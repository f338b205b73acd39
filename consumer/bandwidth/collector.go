package bandwidth

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// maxSeries is the limit of series per metric family. overflow is the part of it reserved for comm="other": one
// series per row and mode.
const (
	maxSeries = 2000
	overflow  = 2 * int(numRows)
)

// labels are the labels of one series. The family of busy seconds has no mode; its copies are synchronous.
type labels struct {
	hostname, gpu, uuid, container, comm string

	row   schema.Direction // or rowSet
	async bool
}

// series identifies a sum. State is kept per cluster and host; labels have no cluster. The series of comm="other"
// belong to no host.
type series struct {
	snapshot.HostID
	labels
}

var kindWords = [schema.NumDirections]string{
	schema.HtoD: "h2d", schema.DtoH: "d2h", schema.DtoD: "d2d", schema.HtoH: "h2h", schema.PtoP: "p2p",
	schema.DirDefault: "default",
}

var (
	busyLabels = []string{"hostname", "gpu", "UUID", "container", "comm", "kind"}
	copyLabels = []string{"hostname", "gpu", "UUID", "container", "comm", "kind", "mode"}
	setLabels  = []string{"hostname", "gpu", "UUID", "container", "comm", "mode"}

	copiedBytes = prometheus.NewDesc("gputap_cuda_memcpy_bytes_total",
		"Bytes of successful copies. Mode sync: copied; mode async: submitted.", copyLabels, nil)
	copyCalls = prometheus.NewDesc("gputap_cuda_memcpy_calls_total",
		"Successful copies. Mode sync: done; mode async: submitted.", copyLabels, nil)
	setBytes = prometheus.NewDesc("gputap_cuda_memset_bytes_total",
		"Bytes of successful memory sets. Mode sync: set; mode async: submitted.", setLabels, nil)
	setCalls = prometheus.NewDesc("gputap_cuda_memset_calls_total",
		"Successful memory sets. Mode sync: done; mode async: submitted.", setLabels, nil)
	busySeconds = prometheus.NewDesc("gputap_cuda_memcpy_busy_seconds_total",
		"Host time in successful synchronous copy calls. Bytes of mode sync divided by this time are the throughput.",
		busyLabels, nil)
)

// at returns the sum of a series, always the same one.
func (m *Meter) at(k series) *sum {
	if s := m.series[k]; s != nil {
		return s
	}
	if len(m.series) >= maxSeries-overflow {
		return m.other(k.row, k.async)
	}
	s := &sum{}
	m.series[k] = s
	return s
}

// other returns the sum of comm="other" for a row and mode.
func (m *Meter) other(row schema.Direction, async bool) *sum {
	l := labels{comm: "other", row: row, async: async}
	if m.others[l] == nil {
		m.others[l] = &sum{}
	}
	return m.others[l]
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	ch <- copiedBytes
	ch <- copyCalls
	ch <- busySeconds
	ch <- setBytes
	ch <- setCalls
	ch <- waitSeconds
	ch <- waitCalls
}

// Collect implements prometheus.Collector. It copies the state under the lock and builds the metrics without it.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	m.collectWaits(ch)
	for l, s := range m.scrape() {
		mode, who := "sync", []string{l.hostname, l.gpu, l.uuid, l.container, l.comm}
		if l.async {
			mode = "async"
		}
		if l.row == rowSet {
			ch <- total(setBytes, float64(s.bytes), append(who, mode))
			ch <- total(setCalls, float64(s.calls), append(who, mode))
			continue
		}
		who = append(who, kindWords[l.row])
		if !l.async {
			ch <- total(busySeconds, float64(s.busy)/1e9, who)
		}
		ch <- total(copiedBytes, float64(s.bytes), append(who, mode))
		ch <- total(copyCalls, float64(s.calls), append(who, mode))
	}
}

func (m *Meter) scrape() map[labels]sum {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := make(map[labels]sum, len(m.series))
	for k, s := range m.series {
		of := page[k.labels]
		of.add(*s)
		page[k.labels] = of
	}
	for l, s := range m.others {
		of := page[l]
		of.add(*s)
		page[l] = of
	}
	return page
}

func total(desc *prometheus.Desc, v float64, labels []string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, labels...)
}
