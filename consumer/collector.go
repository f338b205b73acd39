package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

var (
	descBatches     = metric.Desc("gputap_consumer_batches_total")
	descEvents      = metric.Desc("gputap_consumer_events_total")
	descLag         = metric.Desc("gputap_consumer_lag_messages")
	descDeadLetters = metric.Desc("gputap_consumer_dead_letters_total")
	descUnseen      = metric.Desc("gputap_consumer_unseen_batches_total")
	descGaps        = metric.Desc("gputap_consumer_sequence_gaps_total")
	descGapBatches  = metric.Desc("gputap_consumer_gap_batches_total")
	descLastEvent   = metric.Desc("gputap_consumer_host_last_event_timestamp_seconds")
	descLastHeard   = metric.Desc("gputap_consumer_host_last_heard_timestamp_seconds")
	descLost        = metric.Desc("gputap_consumer_producer_lost_events_total")
)

// timing holds the histograms that each batch updates.
type timing struct {
	delay  prometheus.Histogram
	handle prometheus.Histogram
}

func newTiming(fold string, shard int) timing {
	histogram := func(name string, buckets ...float64) prometheus.Histogram {
		opts := metric.HistogramOpts(name, prometheus.Labels{"consumer": fold, "shard": shardLabel(shard)}, buckets...)
		opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber = 1.1, 160
		opts.NativeHistogramMinResetDuration = time.Hour
		return prometheus.NewHistogram(opts)
	}
	return timing{
		delay: histogram("gputap_consumer_event_delay_seconds",
			.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300),
		handle: histogram("gputap_consumer_handler_duration_seconds",
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
		if h.heard.After(sum.heard) {
			sum.heard = h.heard
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
		if !h.heard.IsZero() {
			gauge(descLastHeard, float64(h.heard.UnixNano())/1e9, id.Cluster, id.Host)
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
	descOwned      = metric.Desc("gputap_consumer_owned_shards")
	descClaims     = metric.Desc("gputap_consumer_claims_total")
	descHandOvers  = metric.Desc("gputap_consumer_hand_overs_total")
	descLeasesLost = metric.Desc("gputap_consumer_leases_lost_total")
	descFenced     = metric.Desc("gputap_consumer_fenced_total")
	descRebuilt    = metric.Desc("gputap_consumer_states_rebuilt_total")
	descNewer      = metric.Desc("gputap_consumer_newer_states_total")
	descCommits    = metric.Desc("gputap_consumer_checkpoints_total")

	descCheckpointAge   = metric.Desc("gputap_consumer_checkpoint_age_seconds")
	descCheckpointBytes = metric.Desc("gputap_consumer_checkpoint_bytes")
)

// Describe sends nothing: shards come and go between scrapes.
func (c *Consumer) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the instance, and the Page of the readers of every owned shard and of the folds that
// Each sees. Where two shards have a series with the same labels, it sends their sum, or the largest value where a sum
// means nothing.
func (c *Consumer) Collect(to chan<- prometheus.Metric) {
	gauge, counter := senders(to, c.fold)
	owned := c.owned()
	for _, o := range owned {
		gauge(descCheckpointAge, time.Since(o.Written).Seconds(), shardLabel(o.Shard))
		gauge(descCheckpointBytes, float64(o.Bytes), shardLabel(o.Shard))
	}
	c.page.Collect(to)
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

func (c *Consumer) collectors() (all []prometheus.Collector) {
	for _, o := range c.owned() {
		r := o.Reader.(*statefulReader)
		all = append(all, r.reader)
		if collector, ok := r.fold.(prometheus.Collector); ok && !o.Superseded {
			all = append(all, collector)
		}
	}
	return all
}
