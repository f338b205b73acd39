package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// collectors are several folds, shown as one.
type collectors []prometheus.Collector

func (c collectors) Describe(chan<- *prometheus.Desc) {}

func (c collectors) Collect(to chan<- prometheus.Metric) {
	merged := newFamilies()
	for _, one := range c {
		if err := merged.add(one); err != nil {
			to <- prometheus.NewInvalidMetric(descShown, err)
		}
	}
	for _, m := range merged.order {
		to <- m
	}
}

// series makes one collector with so many series of a host.
type series struct {
	host string
	n    int
}

var descSeries = prometheus.NewDesc("bytes", "Bytes.",
	[]string{"hostname", "gpu", "gpu_uuid", "container", "comm", "pid", "class"}, nil)

func (s series) Describe(chan<- *prometheus.Desc) {}

func (s series) Collect(to chan<- prometheus.Metric) {
	for i := range s.n {
		to <- prometheus.MustNewConstMetric(descSeries, prometheus.GaugeValue, float64(i), s.host, "0",
			"GPU-c3ff3ac8-a434-7de1-0f00-2b4e63ac3a57", "",
			"python3", fmt.Sprint(i), "device")
	}
}

// TestFamiliesMergeSeries: series with equal labels are added, times take the latest, other series stay as they
// are.
func TestFamiliesMergeSeries(t *testing.T) {
	t.Parallel()
	shard := func(host string, n, at float64) prometheus.Collector {
		registry := prometheus.NewRegistry()
		events := prometheus.NewCounter(prometheus.CounterOpts{Name: "events_total", Help: "Events."})
		last := prometheus.NewGauge(prometheus.GaugeOpts{Name: "last_timestamp_seconds", Help: "Last."})
		live := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "live_bytes", Help: "Live."},
			[]string{"class", "hostname"})
		sizes := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sizes", Help: "Sizes.",
			Buckets: []float64{1, 10}})
		registry.MustRegister(events, last, live, sizes)
		for name, v := range map[string]float64{"gputap_leak_state_incomplete": 1, "gputap_gpu_info": 1,
			"gputap_leak_unexplained_bytes": n} {
			one := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Largest."})
			registry.MustRegister(one)
			one.Set(v)
		}
		events.Add(n)
		last.Set(at)
		live.WithLabelValues("device", host).Set(n)
		live.WithLabelValues("device", "all").Set(n)
		sizes.Observe(n)
		return registry
	}
	const want = `
# HELP events_total Events.
# TYPE events_total counter
events_total 5
# HELP gputap_gpu_info Largest.
# TYPE gputap_gpu_info gauge
gputap_gpu_info 1
# HELP gputap_leak_state_incomplete Largest.
# TYPE gputap_leak_state_incomplete gauge
gputap_leak_state_incomplete 1
# HELP gputap_leak_unexplained_bytes Largest.
# TYPE gputap_leak_unexplained_bytes gauge
gputap_leak_unexplained_bytes 4
# HELP last_timestamp_seconds Last.
# TYPE last_timestamp_seconds gauge
last_timestamp_seconds 700
# HELP live_bytes Live.
# TYPE live_bytes gauge
live_bytes{class="device",hostname="a"} 1
live_bytes{class="device",hostname="all"} 5
live_bytes{class="device",hostname="b"} 4
# HELP sizes Sizes.
# TYPE sizes histogram
sizes_bucket{le="1"} 1
sizes_bucket{le="10"} 2
sizes_bucket{le="+Inf"} 2
sizes_sum 5
sizes_count 2
`
	if err := testutil.CollectAndCompare(collectors{shard("a", 1, 700), shard("b", 4, 600)},
		strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// BenchmarkScrapeShards scrapes 16 shards of 64 hosts with 40 series each, in turn with the same series as one
// collector's.
func BenchmarkScrapeShards(b *testing.B) {
	const shards, hosts, each = 16, 64, 40
	var many collectors
	var one []prometheus.Collector
	for shard := range shards {
		var folds collectors
		for host := range hosts {
			c := series{fmt.Sprintf("h-%d-%d", shard, host), each}
			folds, one = append(folds, c), append(one, c)
		}
		many = append(many, folds)
	}
	page := New("leak", func() []prometheus.Collector { return []prometheus.Collector{&many} })
	for name, list := range map[string][]prometheus.Collector{"merged": {many}, "plain": one, "page": {page}} {
		b.Run(name, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(list...)
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*shards*hosts*each), "ns/series")
		})
	}
}
