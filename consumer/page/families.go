package page

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// families merges the metrics of several folds: series of the same name and labels become one.
type families struct {
	names  map[*prometheus.Desc]family
	series map[string]*merged
	order  []*merged
	key    []byte // reused

	take func(of prometheus.Collector, m *merged) bool // nil, or reports that it has taken a metric
}

type family struct {
	name string
	text string // equal for equal descriptions
}

func newFamilies() *families {
	return &families{names: map[*prometheus.Desc]family{}, series: map[string]*merged{}}
}

func (f *families) add(collector prometheus.Collector) error {
	metrics := make(chan prometheus.Metric, 256)
	go func() {
		defer close(metrics)
		collector.Collect(metrics)
	}()
	var first error
	for m := range metrics { // until the collector ends: else it would block for ever
		if err := f.addMetric(collector, m); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (f *families) addMetric(from prometheus.Collector, m prometheus.Metric) error {
	desc, written := m.Desc(), &dto.Metric{}
	if err := m.Write(written); err != nil {
		return err
	}
	of, known := f.names[desc]
	if !known {
		text := desc.String()
		_, name, _ := strings.Cut(text, `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		of = family{name, text}
		f.names[desc] = of
	}
	f.key = appendKey(f.key[:0], of.text, written.Label)
	if have := f.series[string(f.key)]; have != nil {
		have.add(written)
		return nil
	}
	one := &merged{desc, of, string(f.key), written}
	if f.take != nil && f.take(from, one) {
		return nil
	}
	f.series[one.key] = one
	f.order = append(f.order, one)
	return nil
}

// appendKey appends what identifies a series: the text of its description and the values of its labels, which are
// sorted by name.
func appendKey(key []byte, text string, labels []*dto.LabelPair) []byte {
	key = append(key, text...)
	for _, l := range labels {
		key = append(append(key, 0xff), l.GetValue()...)
	}
	return key
}

// merged is the sum of several metrics.
type merged struct {
	desc   *prometheus.Desc
	family family
	key    string
	metric *dto.Metric
}

func (have *merged) add(m *dto.Metric) {
	to := have.metric
	switch {
	case m.Counter != nil:
		*to.Counter.Value += m.Counter.GetValue()
	case m.Gauge != nil && takesLargest(have.family.name):
		*to.Gauge.Value = max(to.Gauge.GetValue(), m.Gauge.GetValue())
	case m.Gauge != nil:
		*to.Gauge.Value += m.Gauge.GetValue()
	case m.Histogram != nil:
		addHistogram(to.Histogram, m.Histogram, 1)
	}
}

// takesLargest reports whether the largest value counts instead of the sum: for times, for booleans, and for what
// several hosts report of one GPU.
func takesLargest(name string) bool {
	return slices.ContainsFunc([]string{"_timestamp_seconds", "_incomplete", "_info", "_unexplained_bytes",
		"_age_seconds"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

func (have *merged) Desc() *prometheus.Desc { return have.desc }

func (have *merged) Write(to *dto.Metric) error {
	from := have.metric
	to.Label, to.Counter, to.Gauge, to.Histogram, to.Untyped = from.Label, from.Counter, from.Gauge, from.Histogram,
		from.Untyped
	return nil
}
