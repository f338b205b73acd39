package consumer

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// families merges the metrics of several folds: series of the same name and labels become one.
type families struct {
	names  map[*prometheus.Desc]string // text that is equal for equal descriptions
	series map[string]*merged
	order  []*merged
	key    []byte // reused
}

func newFamilies() *families {
	return &families{names: map[*prometheus.Desc]string{}, series: map[string]*merged{}}
}

func (f *families) add(collector prometheus.Collector) error {
	metrics := make(chan prometheus.Metric, 256)
	go func() {
		defer close(metrics)
		collector.Collect(metrics)
	}()
	var first error
	for m := range metrics { // until the collector ends: else it would block for ever
		if err := f.addMetric(m); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (f *families) addMetric(m prometheus.Metric) error {
	desc, written := m.Desc(), &dto.Metric{}
	if err := m.Write(written); err != nil {
		return err
	}
	name, known := f.names[desc]
	if !known {
		name = desc.String()
		f.names[desc] = name
	}
	f.key = append(f.key[:0], name...)
	for _, l := range written.Label { // sorted by name
		f.key = append(append(f.key, 0xff), l.GetValue()...)
	}
	if have := f.series[string(f.key)]; have != nil {
		have.add(name, written)
		return nil
	}
	one := &merged{desc, written}
	f.series[string(f.key)] = one
	f.order = append(f.order, one)
	return nil
}

// merged is the sum of several metrics.
type merged struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

func (have *merged) add(name string, m *dto.Metric) {
	to := have.metric
	switch {
	case m.Counter != nil:
		*to.Counter.Value += m.Counter.GetValue()
	case m.Gauge != nil && takesLargest(name):
		*to.Gauge.Value = max(to.Gauge.GetValue(), m.Gauge.GetValue())
	case m.Gauge != nil:
		*to.Gauge.Value += m.Gauge.GetValue()
	case m.Histogram != nil:
		addHistogram(to.Histogram, m.Histogram)
	}
}

// takesLargest reports whether the largest value counts instead of the sum: for times, for booleans, and for what
// several hosts report of one GPU. name is the text of a description.
func takesLargest(name string) bool {
	return slices.ContainsFunc([]string{`_timestamp_seconds"`, `_incomplete"`, `_info"`, `_unexplained_bytes"`},
		func(end string) bool {
			return strings.Contains(name, end)
		})
}

// addHistogram adds classic buckets, which are the same in all shards of a fold.
func addHistogram(to, more *dto.Histogram) {
	*to.SampleCount += more.GetSampleCount()
	*to.SampleSum += more.GetSampleSum()
	for i, b := range more.GetBucket() {
		if i < len(to.Bucket) {
			*to.Bucket[i].CumulativeCount += b.GetCumulativeCount()
		}
	}
}

func (have *merged) Desc() *prometheus.Desc { return have.desc }

func (have *merged) Write(to *dto.Metric) error {
	from := have.metric
	to.Label, to.Counter, to.Gauge, to.Histogram, to.Untyped = from.Label, from.Counter, from.Gauge, from.Histogram,
		from.Untyped
	return nil
}
