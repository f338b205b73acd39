package page

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema/metric"
)

// sampled are series of families of the table. Each value belongs to a program on a host of its own.
type sampled map[string]map[int]float64 // by family, then by number of the program

func (sampled) Describe(chan<- *prometheus.Desc) {}

func (s sampled) Collect(to chan<- prometheus.Metric) {
	for name, values := range s {
		f := metric.Find(name)
		kind := prometheus.GaugeValue
		if f.Type == metric.Counter {
			kind = prometheus.CounterValue
		}
		for i, v := range values {
			labels := make([]string, len(f.Labels))
			for at, label := range f.Labels {
				switch label {
				case "comm":
					labels[at] = fmt.Sprint("program-", i)
				case "hostname":
					labels[at] = fmt.Sprint("host-", i)
				case "kind", "shard":
					labels[at] = "same"
				}
			}
			if f.Type == metric.Histogram {
				h := process.Powers{}
				h.ObserveAll(i%20, uint64(v), 1)
				to <- h.Metric(metric.Desc(name), 1, []int{2, 4, 8}, labels...)
				continue
			}
			to <- prometheus.MustNewConstMetric(metric.Desc(name), kind, v, labels...)
		}
	}
}

// scrapePage returns the series of a page by family, then by labels.
func scrapePage(t *testing.T, p *Page) map[string]map[string]*dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range metric.Check(families) {
		t.Error(difference)
	}
	page := map[string]map[string]*dto.Metric{}
	for _, f := range families {
		page[f.GetName()] = map[string]*dto.Metric{}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			page[f.GetName()][strings.Join(labels, " ")] = m
		}
	}
	return page
}

func pageOf(part sampled) *Page {
	p := New("leak", func() []prometheus.Collector { return []prometheus.Collector{&part} })
	p.limits = limits{200, 2000} // a tenth: the tests are faster
	return p
}

func many(n int, value func(i int) float64) map[int]float64 {
	all := map[int]float64{}
	for i := range n {
		all[i] = value(i)
	}
	return all
}

const (
	allocated = "gputap_cuda_memory_allocated_bytes_total"
	live      = "gputap_cuda_memory_live_bytes"
	unmatched = "gputap_leak_unmatched_frees_total"
	heard     = "gputap_consumer_host_last_heard_timestamp_seconds"
	blocks    = "gputap_cuda_kernel_grid_blocks"
)

func TestPageCountsTheRestAsOther(t *testing.T) {
	t.Parallel()
	const n = 250
	rising := func(i int) float64 { return float64(i) }
	page := scrapePage(t, pageOf(sampled{
		allocated: many(n, rising), live: many(n, rising), unmatched: many(n, rising), heard: many(n, rising),
		blocks: many(n, func(int) float64 { return 3 }),
	}))
	for _, row := range []struct {
		family, other string
		shown, folded int
	}{
		{allocated, "comm=other kind=same", 200, 50},
		{live, "comm=other kind=same", 200, 50},
		{unmatched, "hostname=other", 200, 50},
		{heard, "", 200, 50},
		{blocks, "comm=other", 33, n - 33}, // six series each: three buckets, +Inf, sum and count
	} {
		series := page[row.family]
		var total, want float64
		for i := range n {
			want += map[bool]float64{true: 3, false: float64(i)}[row.family == blocks]
		}
		for _, m := range series {
			total += valueOf(m)
		}
		others := 1
		if row.other == "" {
			others, want = 0, want-float64((row.folded-1)*row.folded/2) // the smallest are left out
		} else if series[row.other] == nil {
			t.Errorf("%s has no series %s", row.family, row.other)
		}
		if len(series) != row.shown+others || total != want {
			t.Errorf("%s: %d series with a sum of %g, want %d and %g", row.family, len(series), total, row.shown+others,
				want)
		}
		label := "consumer=leak family=" + row.family
		overflow := page["gputap_consumer_series_overflow_total"][label].GetCounter().GetValue()
		if overflow != float64(row.folded) {
			t.Errorf("%s: %g counted as overflow, want %d", row.family, overflow, row.folded)
		}
		each := map[bool]int{true: 6, false: 1}[row.family == blocks]
		if got := page["gputap_consumer_series"][label].GetGauge().GetValue(); got != float64(each*len(series)) {
			t.Errorf("%s: %g series counted, the page has %d", row.family, got, each*len(series))
		}
	}
	for _, i := range []int{n - 1, n - 200} {
		if page[live][fmt.Sprintf("comm=program-%d hostname=host-%d kind=same", i, i)] == nil {
			t.Errorf("process %d is among the 200 largest and is not shown", i)
		}
	}
}

func TestPageHasALimitForAllFamilies(t *testing.T) {
	t.Parallel()
	if got := New("leak", nil).limits; got != (limits{2000, 20_000}) {
		t.Errorf("the limits are %v", got)
	}
	full := sampled{}
	for _, f := range metric.Families {
		if f.Component == metric.Leak && slices.Contains(f.Labels, "comm") {
			full[f.Name] = many(250, func(i int) float64 { return float64(i) })
		}
	}
	few := "gputap_torch_blocks"
	full[few] = many(10, func(int) float64 { return 1 })
	if len(full) < 15 {
		t.Fatalf("%d families do not fill 2,000 series", len(full))
	}
	p := pageOf(full)
	for range 2 {
		page, total := scrapePage(t, p), 0
		for name, series := range page {
			if !strings.HasPrefix(name, "gputap_consumer_") {
				total += len(series)
			}
		}
		if others := len(full); total > 2000+others || total < 1900 {
			t.Errorf("%d series, want 2,000 and those of others", total)
		}
		if len(page[few]) != 10 {
			t.Errorf("a small family has %d of 10 series", len(page[few]))
		}
	}
}

// churn changes counters at random: they grow, begin anew, disappear and return. truth is the growth of the series that
// are not shown, as far as scrapes can see it.
type churn struct {
	random        *rand.Rand
	values, sizes map[int]float64
	hidden        map[int]float64 // by number, as the last scrape saw them
	truth         float64
}

func (c *churn) change() {
	for i := range 260 {
		switch c.random.IntN(12) {
		case 0:
			delete(c.values, i)
			delete(c.sizes, i)
		case 1:
			c.values[i] = 1 // began anew
		default:
			c.values[i] += float64(c.random.IntN(100))
			c.sizes[i%50] += float64(c.random.IntN(9))
		}
	}
}

func (c *churn) see(page map[string]map[string]*dto.Metric) {
	for i := range 260 {
		v, exists := c.values[i]
		if !exists || page[allocated][labelsOf(i)] != nil {
			delete(c.hidden, i)
			continue
		}
		if c.truth += v; c.hidden[i] <= v {
			c.truth -= c.hidden[i]
		}
		c.hidden[i] = v
	}
}

func labelsOf(i int) string { return fmt.Sprintf("comm=program-%d hostname=host-%d kind=same", i, i) }

// checkOther fails if the series of comm="other" of a family is gone, smaller, or has impossible buckets.
func checkOther(t *testing.T, before, page map[string]*dto.Metric) {
	t.Helper()
	for labels, was := range before {
		if !strings.Contains(labels, "comm=other") {
			continue
		}
		now := page[labels]
		if now == nil || valueOf(now) < valueOf(was) {
			t.Fatalf("%s went back from %v to %v", labels, was, now)
		}
		for b, bucket := range now.GetHistogram().GetBucket() {
			if n := bucket.GetCumulativeCount(); n < was.Histogram.Bucket[b].GetCumulativeCount() ||
				n > now.Histogram.GetSampleCount() {
				t.Fatalf("a bucket of %s went back or has too many: %v", labels, now)
			}
		}
	}
}

func TestNoCounterGoesBack(t *testing.T) {
	t.Parallel()
	c := churn{random: rand.New(rand.NewPCG(1, 2)), values: map[int]float64{}, sizes: map[int]float64{},
		hidden: map[int]float64{}}
	p := pageOf(sampled{allocated: c.values, blocks: c.sizes, live: many(210, func(int) float64 { return 1 })})
	var before map[string]map[string]*dto.Metric
	for round := range 12 {
		c.change()
		page := scrapePage(t, p)
		checkOther(t, before[allocated], page[allocated])
		checkOther(t, before[blocks], page[blocks])
		for i := range c.values {
			if before[allocated][labelsOf(i)] != nil && page[allocated][labelsOf(i)] == nil {
				t.Fatalf("round %d: program %d was shown, still exists, and is not shown any more", round, i)
			}
		}
		c.see(page)
		if other := page[allocated]["comm=other kind=same"].GetCounter().GetValue(); other != c.truth {
			t.Fatalf("round %d: other has %g, want %g", round, other, c.truth)
		}
		before = page
	}
	if c.truth == 0 {
		t.Fatal("nothing was counted as other")
	}
}

// limited is a part with a limit of its own.
type limited struct {
	sampled
	above *uint64
}

func (l limited) Overflow(see func(string, uint64)) { see(allocated, *l.above) }

// TestPageAddsTheOverflowOfItsParts: what a part counts as other belongs to the page's own series, and the total does
// not fall when a part goes.
func TestPageAddsTheOverflowOfItsParts(t *testing.T) {
	t.Parallel()
	above := uint64(7)
	part := &limited{sampled{allocated: {1: 1}}, &above}
	parts := []prometheus.Collector{part}
	p := New("leak", func() []prometheus.Collector { return parts })
	total := func() float64 {
		return scrapePage(t, p)["gputap_consumer_series_overflow_total"]["consumer=leak family="+
			allocated].GetCounter().GetValue()
	}
	got := []float64{total()}
	above = 9
	got = append(got, total())
	parts = nil
	got = append(got, total())
	again := uint64(2)
	parts = []prometheus.Collector{&limited{sampled{allocated: {1: 1}}, &again}} // the shard was restored
	got = append(got, total())
	if !slices.Equal(got, []float64{7, 9, 9, 11}) {
		t.Errorf("the total was %v", got)
	}
}

// TestCountersStayWhenGaugesFillThePage: they keep the series that they have when the limit of a family falls.
func TestCountersStayWhenGaugesFillThePage(t *testing.T) {
	t.Parallel()
	values := sampled{allocated: many(190, func(int) float64 { return 1 })}
	p := pageOf(values)
	scrapePage(t, p)
	for _, f := range metric.Families {
		if f.Type == metric.Gauge && f.Component == metric.Leak && slices.Contains(f.Labels, "comm") {
			values[f.Name] = many(200, func(int) float64 { return 1 })
		}
	}
	page, total := scrapePage(t, p), 0
	for name, series := range page {
		if !strings.HasPrefix(name, "gputap_consumer_") {
			total += len(series)
		}
	}
	if len(page[allocated]) != 190 || page[allocated]["comm=other kind=same"] != nil || total > 2000+len(values) {
		t.Errorf("%d counters are left of 190, on a page of %d series", len(page[allocated]), total)
	}
}
