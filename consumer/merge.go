package consumer

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func instanceDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gputap_consumer_"+name, help, append([]string{"consumer"}, labels...), nil)
}

var (
	descOwned      = instanceDesc("owned_shards", "Shards that this instance owns and folds.")
	descClaims     = instanceDesc("claims_total", "Shards taken up, with their state.")
	descHandedOver = instanceDesc("hand_overs_total", "Shards given to an instance that should have them.")
	descLeasesLost = instanceDesc("leases_lost_total", "Shards lost because their lease was not renewed in time.")
	descFenced     = instanceDesc("fenced_total", "Checkpoints refused because another instance had claimed the shard.")
	descRebuilt    = instanceDesc("states_rebuilt_total", "Saved states that could not be used and were rebuilt from the stream.")
	descNewer      = instanceDesc("newer_states_total", "Saved states of a newer program, left to newer instances.")
	descCommits    = instanceDesc("checkpoints_total", "Checkpoints, by what became of them.", "result")

	descCheckpointAge   = desc("checkpoint_age_seconds", "Time since the state of the shard was last saved.")
	descCheckpointBytes = desc("checkpoint_bytes", "Size of the shard's last checkpoint.")
)

// Describe sends nothing: which shards there are is known at the scrape.
func (c *Consumer) Describe(chan<- *prometheus.Desc) {}

// Collect shows every shard that is owned, and the folds of those that Each sees as one: where two shards have a series
// of the same labels it is their sum, or the largest where that is no sum.
func (c *Consumer) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{c.fold}, labels...)...)
	}
	merged := newFamilies()
	loaded, first := c.loaded()
	for _, o := range loaded {
		reader, fold, written := o.view()
		reader.Collect(to)
		to <- prometheus.MustNewConstMetric(descCheckpointAge, prometheus.GaugeValue, time.Since(written).Seconds(), c.fold, shardLabel(o.shard))
		to <- prometheus.MustNewConstMetric(descCheckpointBytes, prometheus.GaugeValue, float64(o.saved.Load()), c.fold, shardLabel(o.shard))
		if collector, ok := fold.(prometheus.Collector); ok && o.shard >= first {
			if err := merged.add(collector); err != nil {
				to <- prometheus.NewInvalidMetric(descOwned, err)
			}
		}
	}
	for _, m := range merged.order {
		to <- m
	}
	to <- prometheus.MustNewConstMetric(descOwned, prometheus.GaugeValue, float64(len(loaded)), c.fold)
	n := &c.counters
	counter(descClaims, n.claims.Load())
	counter(descHandedOver, n.handedOver.Load())
	counter(descLeasesLost, n.leasesLost.Load())
	counter(descFenced, n.fenced.Load())
	counter(descRebuilt, n.rebuilt.Load())
	counter(descNewer, n.newer.Load())
	counter(descCommits, n.commits.Load(), "committed")
	counter(descCommits, n.failed.Load(), "failed")
}

// families are the metrics of several folds, those of the same name and labels as one.
type families struct {
	names  map[*prometheus.Desc]string // all that makes two descriptions the same
	series map[string]*merged
	order  []*merged
	key    []byte // kept to be used again
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
	for m := range metrics { // to the end, or the collector would wait for ever
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
	for _, l := range written.Label { // in the order of their names
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

// merged is a metric that is complete already.
type merged struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

func (have *merged) add(name string, m *dto.Metric) {
	to := have.metric
	switch {
	case m.Counter != nil:
		*to.Counter.Value += m.Counter.GetValue()
	case m.Gauge != nil && isLargest(name):
		*to.Gauge.Value = max(to.Gauge.GetValue(), m.Gauge.GetValue())
	case m.Gauge != nil:
		*to.Gauge.Value += m.Gauge.GetValue()
	case m.Histogram != nil:
		addHistogram(to.Histogram, m.Histogram)
	}
}

// isLargest takes the text of a description. Times are no sum, nor are yes and no, nor what several hosts say of one GPU.
func isLargest(name string) bool {
	return slices.ContainsFunc([]string{`_timestamp_seconds"`, `_incomplete"`, `_info"`, `_unexplained_bytes"`}, func(end string) bool {
		return strings.Contains(name, end)
	})
}

// addHistogram adds classic buckets, which all shards of a fold have alike.
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
	to.Label, to.Counter, to.Gauge, to.Histogram, to.Untyped = from.Label, from.Counter, from.Gauge, from.Histogram, from.Untyped
	return nil
}
