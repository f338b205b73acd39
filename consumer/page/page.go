package page

import (
	"slices"
	"sort"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema/metric"
)

// maxPage is the limit of series of one consumer.
const maxPage = 20_000

var (
	descShown    = metric.Desc("gputap_consumer_series")
	descOverflow = metric.Desc("gputap_consumer_series_overflow_total")
)

// Page is the metrics of one consumer within two limits: 2,000 series for each family that names programs or hosts, and
// 20,000 for these families together. It is a prometheus.Collector.
//
// Above a limit, a family with a comm adds the rest to comm="other", with the other labels of a workload empty. A
// family of hosts adds it to hostname="other" if it is a counter or histogram; a gauge of hosts leaves it out. Gauges
// show their largest series. Counters and histograms keep the series that they have shown, and other never loses a
// part: no counter goes backwards.
type Page struct {
	consumer string
	parts    func() []prometheus.Collector
	limits   limits

	mu       sync.Mutex
	ledgers  map[string]*ledger // by family
	overflow map[string]uint64  // by family
	seen     map[overflowing]map[string]uint64
	totals   totals
}

// limits are numbers of series.
type limits struct{ family, page int }

// overflowing is a part with limits of its own. It reports, by family, how often a series was above a limit.
type overflowing interface {
	Overflow(see func(family string, times uint64))
}

// New returns the page of a consumer. parts lists its collectors, which are pointers, at the time of a scrape.
// Series of several parts with the same labels are merged.
func New(consumer string, parts func() []prometheus.Collector) *Page {
	return &Page{
		consumer: consumer, parts: parts, limits: limits{process.MaxSeries, maxPage}, ledgers: map[string]*ledger{},
		overflow: map[string]uint64{}, seen: map[overflowing]map[string]uint64{},
	}
}

// Describe sends nothing: shards come and go between scrapes.
func (p *Page) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of all parts.
func (p *Page) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, shared, parts := newFamilies(), p.totals.begin(), p.parts()
	all.take = shared.take
	for _, part := range parts {
		if err := all.add(part); err != nil {
			to <- prometheus.NewInvalidMetric(descShown, err)
		}
	}
	p.addOverflow(parts)
	groups := map[string][]*merged{}
	for _, m := range append(all.order, shared.end()...) {
		if scopeOf(m.metric) == unlimited {
			to <- m
		} else {
			groups[m.family.name] = append(groups[m.family.name], m)
		}
	}
	level := p.level(groups)
	for name, series := range groups {
		shown, folded := p.ledger(name).limit(series, level)
		n := 0
		for _, m := range shown {
			to <- m
			n += weight(m.metric)
		}
		p.overflow[name] += folded
		to <- prometheus.MustNewConstMetric(descShown, prometheus.GaugeValue, float64(n), p.consumer, name)
	}
	for name, times := range p.overflow {
		if times > 0 {
			to <- prometheus.MustNewConstMetric(descOverflow, prometheus.CounterValue, float64(times), p.consumer, name)
		}
	}
}

func (p *Page) ledger(family string) *ledger {
	l := p.ledgers[family]
	if l == nil {
		l = &ledger{shown: map[string]uint64{}, folded: map[string]*dto.Metric{}, others: map[string]*merged{}}
		p.ledgers[family] = l
	}
	return l
}

// addOverflow adds the overflow of the parts since the last scrape.
func (p *Page) addOverflow(parts []prometheus.Collector) {
	seen := make(map[overflowing]map[string]uint64, len(p.seen))
	for _, part := range parts {
		of, is := part.(overflowing)
		if !is {
			continue
		}
		now := map[string]uint64{}
		of.Overflow(func(family string, times uint64) {
			now[family] = times
			p.overflow[family] += times - min(times, p.seen[of][family])
		})
		seen[of] = now
	}
	p.seen = seen
}

// level returns the limit of every family, in series, so that the page has room for all. It counts the counters and
// histograms that limit keeps.
func (p *Page) level(groups map[string][]*merged) int {
	total := func(level int) (n int) {
		for name, series := range groups {
			each, kept := weight(series[0].metric), 0
			if series[0].metric.Gauge == nil {
				kept = len(p.ledger(name).shown)
			}
			n += each * min(len(series), max(kept, level/each))
		}
		return n
	}
	return sort.Search(p.limits.family, func(level int) bool { return total(level+1) > p.limits.page })
}

// weight returns the series of a metric: a histogram has one for each bucket, +Inf, sum and count.
func weight(m *dto.Metric) int {
	if m.Histogram != nil {
		return len(m.Histogram.Bucket) + 3
	}
	return 1
}

// scope says whether a family is limited, and how.
type scope int

const (
	unlimited   scope = iota
	ofWorkloads       // has a comm
	ofHosts           // has a hostname and no comm
)

func scopeOf(m *dto.Metric) scope {
	is := unlimited
	for _, l := range m.Label {
		switch l.GetName() {
		case "comm":
			return ofWorkloads
		case "hostname":
			is = ofHosts
		}
	}
	return is
}

// isOther reports whether a series is the one of everything above a limit.
func isOther(m *dto.Metric) bool {
	comm, host := "", ""
	for _, l := range m.Label {
		switch l.GetName() {
		case "comm":
			comm = l.GetValue()
		case "hostname":
			host = l.GetValue()
		case "cluster":
			if l.GetValue() != "" {
				return false
			}
		}
	}
	return comm == process.Other && host == "" || comm == "" && host == process.Other
}

// otherLabels returns the labels of the series of everything above a limit.
func otherLabels(m *dto.Metric) []*dto.LabelPair {
	named, labels := "hostname", make([]*dto.LabelPair, 0, len(m.Label))
	if scopeOf(m) == ofWorkloads {
		named = "comm"
	}
	for _, l := range m.Label {
		value := l.GetValue()
		switch name := l.GetName(); {
		case name == named || name == "kernel":
			value = process.Other
		case slices.Contains(metric.Process, name):
			value = ""
		}
		labels = append(labels, &dto.LabelPair{Name: l.Name, Value: &value})
	}
	return labels
}
