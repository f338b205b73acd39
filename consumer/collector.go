package consumer

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

var constLabels = []string{"consumer", "shard"}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gputap_consumer_"+name, help, append(constLabels[:2:2], labels...), nil)
}

var (
	descBatches     = desc("batches_total", "Messages dealt with, by outcome.", "result")
	descEvents      = desc("events_total", "Events applied.", "kind")
	descLag         = desc("lag_messages", "Messages of the shard that are stored and not dealt with.")
	descDeadLetters = desc("dead_letters_total", "Useless messages copied to the dead letters, and those that could not be.", "result")
	descUnseen      = desc("unseen_batches_total", "Batches from before the first one read of a run, by why they are no loss.", "reason")
	descGaps        = desc("sequence_gaps_total", "Holes in the seq of a host's batches.", "cluster", "hostname")
	descGapBatches  = desc("gap_batches_total", "Batches missing in those holes: lost.", "cluster", "hostname")
	descLastEvent   = desc("host_last_event_timestamp_seconds", "Wall time of a host's last event.", "cluster", "hostname")
	descLost        = desc("producer_lost_events_total", "Events that producers counted as lost, by cause.", "reason")
)

// timing holds what is observed batch by batch.
type timing struct {
	delay  prometheus.Histogram
	handle prometheus.Histogram
}

func newTiming(fold string, shard int) timing {
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_consumer_" + name, Help: help, Buckets: buckets,
			ConstLabels:                 prometheus.Labels{"consumer": fold, "shard": shardLabel(shard)},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		})
	}
	return timing{
		delay: histogram("event_delay_seconds", "Age of a batch's last event when the batch was applied.",
			.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300),
		handle: histogram("handler_duration_seconds", "Time from a message to the end of its fold.",
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
		t.delay.Observe(max(0, now.Sub(b.Wall(b.Last)).Seconds())) // a host's clock may be ahead
	}
}

// Describe sends nothing: which hosts there are is known at the scrape.
func (r *Reader) Describe(chan<- *prometheus.Desc) {}

// Collect takes a copy of the counters; a scrape does not hold up a batch.
func (r *Reader) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	s, lost := r.stats, r.runs.lost()
	perHost := make(map[hostID]hostStats, len(r.hosts))
	for id, h := range r.hosts { // two names may be one label
		id = hostID{process.Label(id.cluster), process.Label(id.host)}
		sum := perHost[id]
		sum.gaps += h.gaps
		sum.missing += h.missing
		if h.last.After(sum.last) {
			sum.last = h.last
		}
		perHost[id] = sum
	}
	r.mu.Unlock()

	shard := shardLabel(r.opts.Shard)
	metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, t, v, append([]string{r.fold.Name(), shard}, labels...)...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		metric(d, prometheus.CounterValue, float64(v), labels...)
	}
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
	metric(descLag, prometheus.GaugeValue, float64(s.Lag))
	for id, h := range perHost {
		counter(descGaps, h.gaps, id.cluster, id.host)
		counter(descGapBatches, h.missing, id.cluster, id.host)
		if !h.last.IsZero() {
			metric(descLastEvent, prometheus.GaugeValue, float64(h.last.UnixNano())/1e9, id.cluster, id.host)
		}
	}
	r.timing.delay.Collect(to)
	r.timing.handle.Collect(to)
}

// shardLabel is spelled as in the name of the shard's stream.
func shardLabel(shard int) string { return fmt.Sprintf("%03d", shard) }
