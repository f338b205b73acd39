package page

import (
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// ledger remembers the series of a family that the last scrape showed, and those that it folded into others.
type ledger struct {
	scrape uint64
	shown  map[string]uint64      // by key: the last scrape; counters and histograms alone
	folded map[string]*dto.Metric // by key: the last value that others include
	others map[string]*merged     // by key: the sums of the folded series
}

// limit returns the series to show, at most so many and those of others, and how many were folded or left out.
func (l *ledger) limit(series []*merged, level int) (shown []*merged, folded uint64) {
	l.scrape++
	first := series[0].metric
	sticky, room := first.Gauge == nil, level/weight(first)
	if len(series) > room {
		slices.SortFunc(series, l.compare)
	}
	if !sticky {
		l.others = map[string]*merged{}
	}
	now, others := map[string]*dto.Metric{}, map[string]*merged{}
	for i, m := range series {
		_, stays := l.shown[m.key]
		switch {
		case isOther(m.metric):
			others[m.key] = m
			continue
		case i < room || sticky && stays:
			shown = append(shown, m)
			if sticky {
				l.shown[m.key] = l.scrape
			}
			continue
		}
		folded++
		now[m.key] = m.metric
		if sticky || scopeOf(m.metric) == ofWorkloads {
			l.fold(m)
		}
	}
	l.folded = now
	if len(l.shown) > len(shown) {
		maps.DeleteFunc(l.shown, func(_ string, scrape uint64) bool { return scrape != l.scrape })
	}
	return append(shown, l.withOthers(others)...), folded
}

// compare orders the series that stay shown first, then those with the largest values.
func (l *ledger) compare(a, b *merged) int {
	rank := func(m *merged) int {
		if _, stays := l.shown[m.key]; stays {
			return 0
		}
		return 1
	}
	if order := rank(a) - rank(b); order != 0 {
		return order
	}
	switch x, y := valueOf(a.metric), valueOf(b.metric); {
	case x > y:
		return -1
	case x < y:
		return 1
	case a.key < b.key:
		return -1
	}
	return 1
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

// fold adds the growth of a series since the last scrape to its other.
func (l *ledger) fold(m *merged) {
	labels := otherLabels(m.metric)
	key := string(appendKey(nil, m.family.text, labels))
	more := grown(m.metric, l.folded[m.key])
	if to := l.others[key]; to != nil {
		to.add(more)
		return
	}
	more.Label = labels
	l.others[key] = &merged{m.desc, m.family, key, more}
}

// withOthers returns the others, each with the series of the same labels that the parts sent.
func (l *ledger) withOthers(counted map[string]*merged) (all []*merged) {
	for key, of := range l.others {
		sum := &merged{of.desc, of.family, key, grown(of.metric, nil)}
		sum.metric.Label = of.metric.Label
		if more := counted[key]; more != nil {
			sum.add(more.metric)
			delete(counted, key)
		}
		all = append(all, sum)
	}
	return slices.AppendSeq(all, maps.Values(counted))
}

// grown returns the growth of a value, without labels. A counter below its earlier value began anew.
func grown(m, before *dto.Metric) *dto.Metric {
	switch {
	case m.Gauge != nil:
		return &dto.Metric{Gauge: &dto.Gauge{Value: new(m.Gauge.GetValue())}}
	case m.Counter != nil:
		v := m.Counter.GetValue()
		if was := before.GetCounter().GetValue(); was <= v {
			v -= was
		}
		return &dto.Metric{Counter: &dto.Counter{Value: &v}}
	}
	sum, was := copyHistogram(m.Histogram), before.GetHistogram()
	if was.GetSampleCount() <= sum.GetSampleCount() && len(was.GetBucket()) == len(sum.Bucket) {
		addHistogram(sum, was, -1)
	}
	return &dto.Metric{Histogram: sum}
}
