package consumer

import (
	"fmt"
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

// Collect shows every shard that is owned, and the folds of all of them as one: where two shards have a series
// of the same labels it is their sum, or the larger where it is a time.
func (c *Consumer) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{c.fold}, labels...)...)
	}
	merged := families{}
	owned := 0
	for _, o := range c.all() {
		reader, fold, written := o.view()
		if reader == nil {
			continue
		}
		owned++
		reader.Collect(to)
		to <- prometheus.MustNewConstMetric(descCheckpointAge, prometheus.GaugeValue, time.Since(written).Seconds(), c.fold, shardLabel(o.shard))
		to <- prometheus.MustNewConstMetric(descCheckpointBytes, prometheus.GaugeValue, float64(o.saved.Load()), c.fold, shardLabel(o.shard))
		if collector, ok := fold.(prometheus.Collector); ok {
			if err := merged.add(collector); err != nil {
				to <- prometheus.NewInvalidMetric(descOwned, err)
			}
		}
	}
	merged.collect(to)
	to <- prometheus.MustNewConstMetric(descOwned, prometheus.GaugeValue, float64(owned), c.fold)
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

// families are the metrics of several folds, by name.
type families map[string]*family

type family struct {
	help   string
	kind   dto.MetricType
	series map[string]*dto.Metric // by labels
	order  []string
}

func (f families) add(collector prometheus.Collector) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector); err != nil {
		return err
	}
	gathered, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, g := range gathered {
		have := f[g.GetName()]
		if have == nil {
			have = &family{help: g.GetHelp(), kind: g.GetType(), series: map[string]*dto.Metric{}}
			f[g.GetName()] = have
		}
		for _, m := range g.GetMetric() {
			have.add(g.GetName(), m)
		}
	}
	return nil
}

func (f *family) add(name string, m *dto.Metric) {
	key := fmt.Sprint(m.GetLabel())
	have := f.series[key]
	if have == nil {
		f.series[key] = m
		f.order = append(f.order, key)
		return
	}
	switch {
	case m.Counter != nil:
		*have.Counter.Value += m.Counter.GetValue()
	case m.Gauge != nil && isTime(name):
		*have.Gauge.Value = max(have.Gauge.GetValue(), m.Gauge.GetValue())
	case m.Gauge != nil:
		*have.Gauge.Value += m.Gauge.GetValue()
	case m.Histogram != nil:
		addHistogram(have.Histogram, m.Histogram)
	}
}

func isTime(name string) bool {
	const suffix = "_timestamp_seconds"
	return len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix
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

func (f families) collect(to chan<- prometheus.Metric) {
	for name, family := range f {
		for _, key := range family.order {
			m := family.series[key]
			labels := make([]string, len(m.Label))
			for i, l := range m.Label {
				labels[i] = l.GetName()
			}
			to <- merged{prometheus.NewDesc(name, family.help, labels, nil), m}
		}
	}
}

// merged is a metric that is complete already.
type merged struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

func (m merged) Desc() *prometheus.Desc { return m.desc }

func (m merged) Write(to *dto.Metric) error {
	to.Label, to.Counter, to.Gauge, to.Histogram, to.Untyped = m.metric.Label, m.metric.Counter, m.metric.Gauge, m.metric.Histogram, m.metric.Untyped
	return nil
}
