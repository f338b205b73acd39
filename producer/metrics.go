package producer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema"
)

// metrics are written by the reading goroutine and the publishers, and read by the scrape. Package attach has its own.
type metrics struct {
	events      [schema.NumOps]atomic.Uint64
	malformed   atomic.Uint64 // records that no program of this build writes
	discarded   atomic.Uint64 // processes whose handles were discarded
	batches     [schema.NumKinds]atomic.Uint64
	batchErrors atomic.Uint64
	bytes       atomic.Uint64
	lost        [schema.NumLosses]atomic.Uint64
	processes   atomic.Int64
	inFlight    atomic.Int64
	ringFill    atomic.Uint64 // per mille of the fullest ring at the last read
	batchEvents prometheus.Histogram
	publishTime prometheus.Histogram
	eventAge    prometheus.Histogram
}

func newMetrics() *metrics {
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30}
	return &metrics{
		batchEvents: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_batch_events", Help: "Events in a batch.",
			Buckets: []float64{1, 8, 64, 512, 4096, 32768},
		}),
		publishTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_publish_duration_seconds", Help: "Time from publishing a batch to its ack.",
			Buckets: buckets,
		}),
		eventAge: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_event_age_seconds", Help: "Age of a batch's last event at its ack.",
			Buckets: buckets,
		}),
	}
}

func (m *metrics) acked(kind schema.Kind, batch *encoded, took time.Duration) {
	m.batches[kind].Add(1)
	m.bytes.Add(uint64(len(batch.data)))
	m.publishTime.Observe(took.Seconds())
	if batch.events > 0 {
		m.batchEvents.Observe(float64(batch.events))
	}
	if batch.events > 0 && (batch.from == nil || !batch.from.Earlier) { // else its clock may be of another boot
		m.eventAge.Observe(float64(bootTime()-batch.last) / 1e9)
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gputap_producer_"+name, help, labels, nil)
}

var (
	descEvents       = desc("events_total", "Events read from the rings, by what the call does.", "op")
	descLost         = desc("events_lost_total", "Lost events, by cause.", "reason")
	descBatches      = desc("batches_total", "Acked batches, and failed publishes, which are retried.", "result")
	descBytes        = desc("published_bytes_total", "Bytes of acked batches.")
	descSpoolBytes   = desc("spool_bytes", "Bytes of queued and in-flight batches.")
	descSpoolBatches = desc("spool_batches", "Queued and in-flight batches.")
	descOutboxBytes  = desc("outbox_bytes", "Bytes of the outbox's files.")
	descOutboxCount  = desc("outbox_batches", "Batches in the outbox that are not acked.")
	descOutboxAge    = desc("outbox_oldest_seconds", "Age of the oldest batch that is not acked; 0: none.")
	descOutboxGone   = desc("outbox_dropped_batches_total",
		"Batches evicted because of producer.outbox_max_bytes; their events count as lost.")
	descOutboxErrors = desc("outbox_write_errors_total", "Failed writes to the outbox.")
	descOutboxDamage = desc("outbox_damaged_total", "Corrupt outbox records found, after a crash or on a bad disk.")
	descOutboxOK     = desc("outbox_writable", "1 while the outbox can be written; 0 while only memory holds batches.")
	descInFlight     = desc("inflight_publishes", "Batches published and not acked.")
	descRingFill     = desc("ringbuf_used_ratio", "Fill of the fullest ring at the last read.")
	descConnected    = desc("nats_connected", "1 while NATS is connected.")
	descShard        = desc("shard", "Shard of this host's batches; absent until the topology was read.")
	descProcesses    = desc("traced_processes", "Running processes that made calls.")
	descDiscarded    = desc("forgotten_processes_total",
		"Processes whose names and graphs were discarded because programs made too many handles.")
	descMalformed = desc("malformed_records_total", "Ring records that no program of this build writes.")
)

// Describe sends nothing: the collector is unchecked, since labels depend on what happened.
func (p *Producer) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters. The only lock that it takes is the spool's, which is held for short times.
func (p *Producer) Collect(out chan<- prometheus.Metric) {
	m := p.metrics
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	acked := uint64(0)
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		acked += m.batches[kind].Load()
	}
	for op := range m.events {
		if n := m.events[op].Load(); n > 0 {
			counter(descEvents, n, schema.Op(op).String())
		}
	}
	out <- prometheus.MustNewConstMetric(descRingFill, prometheus.GaugeValue, float64(m.ringFill.Load())/1000)
	connected := int64(0)
	if p.js.Conn().IsConnected() {
		connected = 1
	}
	gauge(descConnected, connected)
	gauge(descInFlight, m.inFlight.Load())
	level := p.spool.level()
	for cause := range m.lost {
		if schema.Loss(cause) != schema.LossOther {
			counter(descLost, m.lost[cause].Load(), schema.Loss(cause).String())
		}
	}
	counter(descBatches, acked, "acked")
	counter(descBatches, m.batchErrors.Load(), "error")
	counter(descBytes, m.bytes.Load())
	gauge(descSpoolBytes, int64(level.bytes))
	gauge(descSpoolBatches, int64(level.batches))
	if route := p.route.now.Load(); route != nil {
		gauge(descShard, int64(route.shard))
	}
	if p.spool.outbox != nil {
		collectOutbox(out, &level)
	}
	gauge(descProcesses, m.processes.Load())
	counter(descMalformed, m.malformed.Load())
	counter(descDiscarded, m.discarded.Load())
	p.probes.Collect(out)
	m.batchEvents.Collect(out)
	m.publishTime.Collect(out)
	m.eventAge.Collect(out)
}

func collectOutbox(out chan<- prometheus.Metric, l *spoolLevel) {
	writable, age := 1.0, 0.0
	if !l.outbox.Writable {
		writable = 0
	}
	if l.oldest != 0 {
		age = max(0, time.Since(time.Unix(0, l.oldest)).Seconds())
	}
	for _, m := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{descOutboxBytes, prometheus.GaugeValue, float64(l.outbox.Bytes)},
		{descOutboxCount, prometheus.GaugeValue, float64(l.outbox.Batches)},
		{descOutboxAge, prometheus.GaugeValue, age},
		{descOutboxGone, prometheus.CounterValue, float64(l.outbox.Dropped)},
		{descOutboxErrors, prometheus.CounterValue, float64(l.outbox.WriteErrors)},
		{descOutboxDamage, prometheus.CounterValue, float64(l.outbox.Corrupt)},
		{descOutboxOK, prometheus.GaugeValue, writable},
	} {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value)
	}
}
