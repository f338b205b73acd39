package consumer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func instanceDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gputap_consumer_"+name, help, append([]string{"consumer"}, labels...), nil)
}

var (
	descOwned      = instanceDesc("owned_shards", "Shards that this instance owns and folds.")
	descClaims     = instanceDesc("claims_total", "Shards acquired and restored.")
	descHandOvers  = instanceDesc("hand_overs_total", "Shards released to their preferred instance.")
	descLeasesLost = instanceDesc("leases_lost_total", "Shards lost because their lease was not renewed in time.")
	descFenced     = instanceDesc("fenced_total", "Checkpoints refused because another instance had claimed the shard.")
	descRebuilt    = instanceDesc("states_rebuilt_total", "Unusable saved states that were rebuilt from the stream.")
	descNewer      = instanceDesc("newer_states_total",
		"Saved states of a newer program that were left to newer instances.")
	descCommits = instanceDesc("checkpoints_total", "Checkpoints, by result.", "result")

	descCheckpointAge   = desc("checkpoint_age_seconds", "Time since the last checkpoint of the shard.")
	descCheckpointBytes = desc("checkpoint_bytes", "Size of the shard's last checkpoint.")
)

// Describe sends nothing: shards come and go between scrapes.
func (c *Consumer) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of every owned shard, and merges those of the folds that Each sees: where two shards have a
// series with the same labels, it sends their sum, or the largest value where a sum means nothing.
func (c *Consumer) Collect(to chan<- prometheus.Metric) {
	metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, t, v, append([]string{c.fold}, labels...)...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		metric(d, prometheus.CounterValue, float64(n), labels...)
	}
	merged := newFamilies()
	owned := c.owned()
	for _, o := range owned {
		r := o.Reader.(*statefulReader)
		r.reader.Collect(to)
		metric(descCheckpointAge, prometheus.GaugeValue, time.Since(o.Written).Seconds(), shardLabel(o.Shard))
		metric(descCheckpointBytes, prometheus.GaugeValue, float64(o.Bytes), shardLabel(o.Shard))
		if collector, ok := r.fold.(prometheus.Collector); ok && !o.Superseded {
			if err := merged.add(collector); err != nil {
				to <- prometheus.NewInvalidMetric(descOwned, err)
			}
		}
	}
	for _, m := range merged.order {
		to <- m
	}
	metric(descOwned, prometheus.GaugeValue, float64(len(owned)))
	n := c.group.Counts()
	counter(descClaims, n.Claims)
	counter(descHandOvers, n.HandOvers)
	counter(descLeasesLost, n.LeasesLost)
	counter(descFenced, n.Fenced)
	counter(descRebuilt, n.Rebuilt)
	counter(descNewer, n.Newer)
	counter(descCommits, n.Commits, "committed")
	counter(descCommits, n.Failed, "failed")
}
