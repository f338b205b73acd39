package consumer

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/shard"
)

// collectors are several folds, shown as one.
type collectors []prometheus.Collector

func (c collectors) Describe(chan<- *prometheus.Desc) {}

func (c collectors) Collect(to chan<- prometheus.Metric) {
	merged := newFamilies()
	for _, one := range c {
		if err := merged.add(one); err != nil {
			to <- prometheus.NewInvalidMetric(descOwned, err)
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

// TestCheckpointMetricsAfterTakeover: age and size are those of the restored checkpoint.
func TestCheckpointMetricsAfterTakeover(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.send("h")
	before := f.instance("before", newChain)
	eventually(t, "it is saved", func() bool { return before.Counters().Commits.Load() > 0 })
	before.stop()
	saved, err := shard.Saved(t.Context(), f.admin, "chain", 0)
	if err != nil {
		t.Fatal(err)
	}
	i := f.instance("after", newChain)
	eventually(t, "it is taken up", func() bool { return len(i.shards()) == 1 })
	age := time.Since(saved.Written)
	registry := prometheus.NewRegistry()
	registry.MustRegister(i)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		shown[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	if got := shown["gputap_consumer_checkpoint_age_seconds"]; got < age.Seconds() {
		t.Errorf("the checkpoint is %g s old, want at least %g s", got, age.Seconds())
	}
	if got := shown["gputap_consumer_checkpoint_bytes"]; got != float64(len(saved.State)) {
		t.Errorf("the checkpoint has %g bytes, want %d", got, len(saved.State))
	}
	i.stop()
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
	page := NewPage("leak", func() []prometheus.Collector { return []prometheus.Collector{&many} })
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

// TestMergedFoldsShowTheSame compares several folds, whose hosts share names, with one fold of all hosts. There is one
// exception: the choice of kernels with their own series depends on all hosts of a shard.
func TestMergedFoldsShowTheSame(t *testing.T) {
	t.Parallel()
	page := func(c prometheus.Collector) (lines []string) {
		for line := range strings.Lines(string(consumertest.Page(t, c))) {
			if strings.HasPrefix(line, "#") || strings.Contains(line, "kernel_launches_by_name") {
				continue
			}
			value := strings.LastIndexByte(line, ' ') + 1
			// sums of seconds are rounded
			if f, err := strconv.ParseFloat(strings.TrimSpace(line[value:]), 64); err == nil {
				line = fmt.Sprintf("%s%.12g\n", line[:value], f)
			}
			lines = append(lines, line)
		}
		return lines
	}
	for seed := range uint64(2) {
		steps := consumertest.Traffic(t, seed, 200)
		for _, fold := range folds {
			whole, of := fold.fresh(), map[string]Stateful{"c0": fold.fresh(), "c1": fold.fresh()} // both have a host b
			consumertest.Take(t, whole, steps...)
			for _, s := range steps {
				from := s.From
				if s.Lost == 0 {
					from = consumertest.Decode(t, s.Message).Header
				}
				consumertest.Take(t, of[from.Cluster], s)
			}
			got := page(collectors{of["c0"].(prometheus.Collector), of["c1"].(prometheus.Collector)})
			if want := page(whole.(prometheus.Collector)); !slices.Equal(got, want) {
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("%s, %d lines of %d: got\n%swant\n%s", whole.Name(), len(got), len(want), got[i],
							want[i])
					}
				}
			}
		}
	}
}

// TestSupersededShardsAreNotShown checks that only the shards that inherited the hosts show them.
func TestSupersededShardsAreNotShown(t *testing.T) {
	t.Parallel()
	host := consumertest.Memory(t, "h")
	host.Process(1, 1, "x").Alloc(1, 1<<20, 1000, 1, 1)
	steps := consumertest.Steps(host.Message())
	for _, tt := range []struct {
		name   string
		loaded []int
		shown  []int
	}{
		{"one generation", []int{0, 1}, []int{0, 1}},
		{"the next waits", []int{0, 1}, []int{0, 1}},
		{"one has inherited", []int{0, 1, 3}, []int{3}},
		{"all have", []int{0, 1, 2, 3}, []int{2, 3}},
		{"of three generations", []int{1, 2, 4}, []int{4}},
		{"the last of three waits", []int{1, 2}, []int{2}},
		{"none is loaded", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{}, nil, func() Stateful { return leak.New(leak.Config{}) }, slog.New(slog.DiscardHandler))
			c.owned = func() (list []shard.Owned) {
				for _, number := range tt.loaded {
					fold := leak.New(leak.Config{})
					consumertest.Take(t, fold, steps...)
					r := newReader(ReaderOptions{Shard: number}, nil, fold, slog.New(slog.DiscardHandler))
					superseded := !slices.Contains(tt.shown, number)
					list = append(list, shard.Owned{Shard: number, Reader: &statefulReader{r, fold},
						Superseded: superseded})
				}
				return list
			}
			if got := (&instance{Consumer: c}).shards(); !slices.Equal(got, tt.shown) {
				t.Errorf("shards %v are visible, want %v", got, tt.shown)
			}
			page := string(consumertest.Page(t, c))
			for _, line := range []string{
				fmt.Sprintf(`gputap_cuda_memory_allocated_bytes_total{UUID="",cluster="test",comm="x",container="",gpu="",hostname="h",job="",kind="device",pod="",unit="",user=""} %d`, 1000*len(tt.shown)),
				fmt.Sprintf(`gputap_consumer_owned_shards{consumer="leak"} %d`, len(tt.loaded)),
			} {
				if len(tt.shown) > 0 && !strings.Contains(page, line+"\n") {
					t.Errorf("no line %s", line)
				}
			}
		})
	}
}
