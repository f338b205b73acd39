package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return instanceDesc(name, help, append([]string{"shard"}, labels...)...)
}

func instanceDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gputap_consumer_"+name, help, append([]string{"consumer"}, labels...), nil)
}

var (
	descBatches     = desc("batches_total", "Messages read, by outcome.", "result")
	descEvents      = desc("events_total", "Events applied.", "kind")
	descLag         = desc("lag_messages", "Messages of the shard that are stored and not read yet.")
	descDeadLetters = desc("dead_letters_total", "Useless messages, by whether they were copied to the dead letters.",
		"result")
	descUnseen = desc("unseen_batches_total",
		"Batches from before the first one read of a producer run that do not count as lost, by reason.", "reason")
	descGaps = desc("sequence_gaps_total", "Gaps in the sequence numbers of a host's batches.", "cluster",
		"hostname")
	descGapBatches = desc("gap_batches_total", "Batches missing in those gaps: lost.", "cluster", "hostname")
	descLastEvent  = desc("host_last_event_timestamp_seconds", "Wall time of a host's last event.", "cluster",
		"hostname")
	descLost = desc("producer_lost_events_total", "Events that producers counted as lost, by cause.", "reason")
)

// timing holds the histograms that each batch updates.
type timing struct {
	delay  prometheus.Histogram
	handle prometheus.Histogram
}

func newTiming(fold string, shard int) timing {
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_consumer_" + name, Help: help, Buckets: buckets,
			ConstLabels:                 prometheus.Labels{"consumer": fold, "shard": shardLabel(shard)},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		})
	}
	return timing{
		delay: histogram("event_delay_seconds", "Age of a batch's last event when the batch was applied.",
			.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300),
		handle: histogram("handler_duration_seconds", "Time to decode and apply one message.",
			.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .01, .1, 1),
	}
}

func (t *timing) observe(o outcome, b *schema.Batch, began time.Time) {
	if o != outcomeOK {
		return
	}
	now := time.Now()
	t.handle.Observe(now.Sub(began).Seconds())
	if b.Events > 0 {
		t.delay.Observe(max(0, now.Sub(b.Wall(b.Last)).Seconds())) // the host's clock may be ahead
	}
}

// Describe sends nothing: hosts come and go between scrapes.
func (r *Reader) Describe(chan<- *prometheus.Desc) {}

// Collect copies the counters, so that a scrape does not hold up a batch.
func (r *Reader) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	s, lost := r.stats, r.runs.lost()
	perHost := make(map[hostID]hostState, len(r.hosts))
	for id, h := range r.hosts { // two names may become the same label
		id = hostID{Cluster: process.Label(id.Cluster), Host: process.Label(id.Host)}
		sum := perHost[id]
		sum.gaps += h.gaps
		sum.missing += h.missing
		if h.lastEvent.After(sum.lastEvent) {
			sum.lastEvent = h.lastEvent
		}
		perHost[id] = sum
	}
	r.mu.Unlock()

	gauge, counter := senders(to, r.fold.Name(), shardLabel(r.opts.Shard))
	for o, n := range [numOutcomes]uint64{
		outcomeOK: s.Batches, outcomeDuplicate: s.Duplicates, outcomeInvalid: s.Invalid, outcomeRefused: s.Refused,
		outcomeUnknown: s.Unknown,
	} {
		counter(descBatches, n, outcomeWords[o])
	}
	for _, kind := range r.fold.Kinds() {
		if kind != schema.KindHost {
			counter(descEvents, s.Events[kind], kind.String())
		}
	}
	for cause, n := range lost {
		counter(descLost, n, schema.Loss(cause).String())
	}
	counter(descDeadLetters, s.DeadLetters, "kept")
	counter(descDeadLetters, s.DeadLettersLost, "lost")
	counter(descUnseen, s.LateStart, reasonLateStart)
	counter(descUnseen, s.Retention, reasonRetention)
	gauge(descLag, float64(s.Lag))
	for id, h := range perHost {
		counter(descGaps, h.gaps, id.Cluster, id.Host)
		counter(descGapBatches, h.missing, id.Cluster, id.Host)
		if !h.lastEvent.IsZero() {
			gauge(descLastEvent, float64(h.lastEvent.UnixNano())/1e9, id.Cluster, id.Host)
		}
	}
	r.timing.delay.Collect(to)
	r.timing.handle.Collect(to)
}

// senders return functions that send a gauge and a counter with these first labels.
func senders(to chan<- prometheus.Metric, first ...string) (
	gauge func(d *prometheus.Desc, v float64, labels ...string),
	counter func(d *prometheus.Desc, v uint64, labels ...string),
) {
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
		to <- prometheus.MustNewConstMetric(d, t, v, slices.Concat(first, labels)...)
	}
	gauge = func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.GaugeValue, v, labels) }
	counter = func(d *prometheus.Desc, v uint64, labels ...string) {
		send(d, prometheus.CounterValue, float64(v), labels)
	}
	return gauge, counter
}

// shardLabel spells a shard as the name of its stream does.
func shardLabel(shard int) string { return fmt.Sprintf("%03d", shard) }

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
	gauge, counter := senders(to, c.fold)
	merged := newFamilies()
	owned := c.owned()
	for _, o := range owned {
		r := o.Reader.(*statefulReader)
		r.reader.Collect(to)
		gauge(descCheckpointAge, time.Since(o.Written).Seconds(), shardLabel(o.Shard))
		gauge(descCheckpointBytes, float64(o.Bytes), shardLabel(o.Shard))
		if collector, ok := r.fold.(prometheus.Collector); ok && !o.Superseded {
			if err := merged.add(collector); err != nil {
				to <- prometheus.NewInvalidMetric(descOwned, err)
			}
		}
	}
	for _, m := range merged.order {
		to <- m
	}
	gauge(descOwned, float64(len(owned)))
	n := c.Counters()
	counter(descClaims, n.Claims.Load())
	counter(descHandOvers, n.HandOvers.Load())
	counter(descLeasesLost, n.LeasesLost.Load())
	counter(descFenced, n.Fenced.Load())
	counter(descRebuilt, n.Rebuilt.Load())
	counter(descNewer, n.Newer.Load())
	counter(descCommits, n.Commits.Load(), "committed")
	counter(descCommits, n.Failed.Load(), "failed")
}
