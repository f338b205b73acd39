package producer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// metrics are written by the reading goroutine and the publishers, and read by the scrape. Package attach has its own.
type metrics struct {
	events      [schema.NumOps]atomic.Uint64
	malformed   atomic.Uint64 // records that no program of this build writes
	discarded   atomic.Uint64 // processes whose handles were discarded
	unpaired    atomic.Uint64 // waits whose gap to the next launch is not known
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
		batchEvents: prometheus.NewHistogram(metric.HistogramOpts("gputap_producer_batch_events", nil,
			1, 8, 64, 512, 4096, 32768)),
		publishTime: prometheus.NewHistogram(metric.HistogramOpts("gputap_producer_publish_duration_seconds", nil,
			buckets...)),
		eventAge: prometheus.NewHistogram(metric.HistogramOpts("gputap_producer_event_age_seconds", nil,
			buckets...)),
	}
}

func (m *metrics) acked(batch *outbox.Batch, took time.Duration) {
	m.batches[batch.Kind].Add(1)
	m.bytes.Add(uint64(len(batch.Data)))
	m.publishTime.Observe(took.Seconds())
	if batch.Events > 0 {
		m.batchEvents.Observe(float64(batch.Events))
	}
	if batch.Events > 0 && !batch.Earlier { // else its clock may be of another boot
		m.eventAge.Observe(float64(bootTime()-batch.Last) / 1e9)
	}
}

// lostRecords returns the number of records that Linux could not write.
func (p *Producer) lostRecords() (n uint64) {
	lost := p.lost()
	for _, cause := range lost[:bpf.LostCauses] {
		n += cause
	}
	return n
}

// lost collects the loss counters of Linux and of the spool.
func (p *Producer) lost() (all [schema.NumLosses]uint64) {
	counted, err := p.tap.Lost()
	if err != nil {
		p.log.Error("cannot read the loss counters", "err", err)
	}
	copy(all[:], counted[:])
	all[schema.LossSpool] = p.spool.level().droppedEvents
	for cause, n := range all {
		p.metrics.lost[cause].Store(n)
	}
	return all
}

// Describe sends nothing: the collector is unchecked, because some families have no series yet.
func (p *Producer) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters. The only locks that it takes are those of the spool and the outbox, which are held for
// short times.
func (p *Producer) Collect(out chan<- prometheus.Metric) {
	m, level := p.metrics, p.spool.level()
	send := samples(out)
	for op := range m.events {
		if n := m.events[op].Load(); n > 0 {
			send.counter("events_total", n, schema.Op(op).String())
		}
	}
	for cause := range m.lost {
		if cause := schema.Loss(cause); cause != schema.LossOther {
			send.counter("events_lost_total", m.lost[cause].Load(), cause.String())
		}
	}
	acked := uint64(0)
	for kind := range m.batches {
		acked += m.batches[kind].Load()
	}
	send.counter("batches_total", acked, "acked")
	send.counter("batches_total", m.batchErrors.Load(), "error")
	send.counter("published_bytes_total", m.bytes.Load())
	send.gauge("spool_bytes", float64(level.bytes))
	send.gauge("spool_batches", float64(level.batches))
	if p.spool.outbox != nil {
		collectOutbox(out, &level)
	}
	send.gauge("inflight_publishes", float64(m.inFlight.Load()))
	send.gauge("ringbuf_used_ratio", float64(m.ringFill.Load())/1000)
	send.gauge("nats_connected", oneIf(p.js.Conn().IsConnected()))
	send.counter("nats_reconnects_total", p.js.Conn().Stats().Reconnects)
	if route := p.route.now.Load(); route != nil {
		send.gauge("shard", float64(route.shard))
	}
	send.gauge("traced_processes", float64(m.processes.Load()))
	send.counter("forgotten_processes_total", m.discarded.Load())
	send.counter("unknown_gaps_total", m.unpaired.Load())
	send.counter("malformed_records_total", m.malformed.Load())
	p.probes.Collect(out)
	m.batchEvents.Collect(out)
	m.publishTime.Collect(out)
	m.eventAge.Collect(out)
}

func collectOutbox(out chan<- prometheus.Metric, l *spoolLevel) {
	send, age := samples(out), 0.0
	if l.oldest != 0 {
		age = max(0, time.Since(time.Unix(0, l.oldest)).Seconds())
	}
	send.gauge("outbox_bytes", float64(l.outbox.Bytes))
	send.gauge("outbox_batches", float64(l.outbox.Batches))
	send.gauge("outbox_oldest_seconds", age)
	send.counter("outbox_dropped_batches_total", l.outbox.Dropped)
	send.counter("outbox_write_errors_total", l.outbox.WriteErrors)
	send.counter("outbox_damaged_total", l.outbox.Corrupt)
	send.gauge("outbox_writable", oneIf(l.outbox.Writable))
}

// samples sends metrics with a name below gputap_producer_.
type samples chan<- prometheus.Metric

func (s samples) gauge(name string, v float64) { s.send(prometheus.GaugeValue, name, v) }

func (s samples) counter(name string, v uint64, labels ...string) {
	s.send(prometheus.CounterValue, name, float64(v), labels...)
}

func (s samples) send(kind prometheus.ValueType, name string, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(metric.Desc("gputap_producer_"+name), kind, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
