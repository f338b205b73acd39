package page

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema/metric"
)

// shardCounts is the part of a shard in two series of a comm.
type shardCounts struct {
	launches float64
	blocks   process.Powers
}

func (*shardCounts) Describe(chan<- *prometheus.Desc) {}

func (s *shardCounts) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(metric.Desc("gputap_cuda_kernel_launches_by_name_total"),
		prometheus.CounterValue, s.launches, "train", "axpy")
	to <- s.blocks.Metric(metric.Desc(blocks), 1, []int{0, 2, 4}, "train")
}

func (s *shardCounts) launch(n uint64, power int) {
	s.launches += float64(n)
	s.blocks.ObserveAll(power, n, n<<power)
}

// moved returns the counts as another instance restores them.
func (s *shardCounts) moved() *shardCounts { return &shardCounts{s.launches, s.blocks.Clone()} }

// TestTotalsOverAMove moves a shard between two instances. On neither does a counter go back or jump, and together they
// have counted every launch.
func TestTotalsOverAMove(t *testing.T) {
	t.Parallel()
	first, second, third := &shardCounts{}, &shardCounts{}, &shardCounts{}
	owned := [2][]prometheus.Collector{{first, second}, {third}}
	var pages [2]*Page
	for i := range pages {
		pages[i] = New("launch", func() []prometheus.Collector { return owned[i] })
	}
	read := func(i int) (counter float64, h *dto.Histogram) {
		page := scrapePage(t, pages[i])
		return page["gputap_cuda_kernel_launches_by_name_total"]["comm=train kernel=axpy"].GetCounter().GetValue(),
			page[blocks]["comm=train"].GetHistogram()
	}
	check := func(when string, a, b float64) {
		t.Helper()
		for i, want := range []float64{a, b} {
			got, h := read(i)
			if got != want || float64(h.GetSampleCount()) != want {
				t.Errorf("%s, instance %d: %g launches, %d in the histogram, want %g", when, i, got, h.GetSampleCount(),
					want)
			}
			_, counts, simple := nativeCounts(h)
			native := 0.0
			for _, n := range counts {
				native += float64(n)
			}
			if !simple || native != want {
				t.Errorf("%s, instance %d: %g in native buckets, want %g", when, i, native, want)
			}
		}
	}
	first.launch(10, 3)
	second.launch(200, 1)
	third.launch(3000, 2)
	check("at first", 210, 3000)
	second.launch(1, 7)
	check("after one more", 211, 3000)

	second.launch(5, 0) // the last scrape before the move does not see them
	moved := second.moved()
	owned[0], owned[1] = []prometheus.Collector{first}, []prometheus.Collector{third, moved}
	check("after the move", 211, 3000)
	moved.launch(40_000, 1)
	first.launch(7, 9)
	check("after more", 218, 43_000)

	back := moved.moved()
	owned[0], owned[1] = []prometheus.Collector{first, back}, []prometheus.Collector{third}
	check("after it moved back", 218, 43_000)
	back.launch(1, 4)
	check("after one more", 219, 43_000)
	_, h := read(0)
	native := map[int32]int64{}
	from, counts, _ := nativeCounts(h)
	for i, n := range counts {
		if n != 0 {
			native[from+int32(i)] = n
		}
	}
	if want := map[int32]int64{1: 200, 3: 10, 4: 1, 7: 1, 9: 7}; !maps.Equal(native, want) {
		t.Errorf("native buckets %v, want %v", native, want)
	}

	owned[0] = nil
	scrapePage(t, pages[0])
	owned[0] = []prometheus.Collector{first.moved()}
	if got, _ := read(0); got != 17 {
		t.Errorf("a series that is new again has %g launches, want all 17 of its shard", got)
	}
}
