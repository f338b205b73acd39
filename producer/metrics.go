package producer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema"
)

// metrics is what the producer says of itself. Counters are written by the reading goroutine and
// the publishers, and read by the scrape.
type metrics struct {
	events       [schema.NumOps]atomic.Uint64
	malformed    atomic.Uint64 // ring records that make no sense: a build mismatch
	forgot       atomic.Uint64
	batches      [schema.NumKinds]atomic.Uint64
	batchErrors  atomic.Uint64
	bytes        atomic.Uint64
	lost         [schema.NumLosses]atomic.Uint64
	probes       atomic.Int64
	stepped      atomic.Int64
	libraries    atomic.Int64
	processes    atomic.Int64
	attachFailed atomic.Uint64
	sideband     atomic.Int64
	sidebandLost atomic.Uint64
	attachTime   prometheus.Histogram
	inFlight     atomic.Int64
	ringFill     atomic.Uint64 // per mille of the fullest ring at the last read
	batchEvents  prometheus.Histogram
	publishTime  prometheus.Histogram
	eventAge     prometheus.Histogram
}

func newMetrics() *metrics {
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30}
	return &metrics{
		batchEvents: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_batch_events", Help: "Events in a batch.", Buckets: []float64{1, 8, 64, 512, 4096, 32768},
		}),
		attachTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_attach_seconds", Help: "Time from the mapping of a new driver library to its last probe.",
			Buckets: []float64{.001, .0025, .005, .01, .015, .02, .03, .05, .1, 1},
		}),
		publishTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_publish_duration_seconds", Help: "Time from publishing a batch to its ack.", Buckets: buckets,
		}),
		eventAge: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "gputap_producer_event_age_seconds", Help: "Age of a batch's last event at its ack.", Buckets: buckets,
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
	descEvents       = desc("events_total", "Events read from the rings, by what the call did.", "op")
	descLost         = desc("events_lost_total", "Events that were lost, by cause.", "reason")
	descBatches      = desc("batches_total", "Batches acked by the bus, and publishes that failed and were tried again.", "result")
	descBytes        = desc("published_bytes_total", "Bytes of acked batches.")
	descSpoolBytes   = desc("spool_bytes", "Bytes of batches in memory that are not acked.")
	descSpoolBatches = desc("spool_batches", "Batches that are not acked, in memory and in the outbox.")
	descOutboxBytes  = desc("outbox_bytes", "Bytes of the outbox's files.")
	descOutboxCount  = desc("outbox_batches", "Batches in the outbox that are not acked.")
	descOutboxAge    = desc("outbox_oldest_seconds", "Age of the oldest batch that is not acked; 0 if there is none.")
	descOutboxGone   = desc("outbox_dropped_batches_total", "Batches dropped to stay within producer.outbox_max_bytes, or because the disk was full.")
	descOutboxErrors = desc("outbox_write_errors_total", "Failed writes to the outbox.")
	descOutboxDamage = desc("outbox_damaged_total", "Corrupt or unreadable outbox records found.")
	descOutboxOK     = desc("outbox_writable", "1 while batches are written to the outbox; 0 while they are kept in memory only.")
	descInFlight     = desc("inflight_publishes", "Batches that were sent and not acked yet.")
	descRingFill     = desc("ringbuf_used_ratio", "Fill of the fullest ring at the last read.")
	descConnected    = desc("nats_connected", "1 while the bus is connected.")
	descShard        = desc("shard", "Shard of the bus that takes this host's batches; absent until the bus has said.")
	descProbes       = desc("attached_probes", "Probed functions over all libraries.")
	descStepped      = desc("stepped_probes", "Of them, probes on an instruction that Linux single-steps: about ten times as slow.")
	descLibraries    = desc("attached_libraries", "Driver library files with probes.")
	descProcesses    = desc("traced_processes", "Processes that made calls and have not ended.")
	descAttachFailed = desc("attach_failures_total", "Libraries that could not be attached.")
	descSideband     = desc("sideband", "1 while perf side-band records tell of new mappings at once; 0: scans alone find them.")
	descSideLost     = desc("sideband_lost_total", "Side-band records that Linux had no room for; a scan made up for them.")
	descForgot       = desc("forgotten_processes_total", "Times that a process's names and graphs were forgotten, since programs had made too many handles.")
	descMalformed    = desc("malformed_records_total", "Ring records that make no sense.")
)

// Describe sends nothing: the collector is unchecked, since labels depend on what happened.
func (p *Producer) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters; it waits for nobody but the spool's short lock.
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
	if way := p.route.now.Load(); way != nil {
		gauge(descShard, int64(way.shard))
	}
	if p.spool.outbox != nil {
		collectOutbox(out, &level)
	}
	gauge(descProbes, m.probes.Load())
	gauge(descStepped, m.stepped.Load())
	gauge(descLibraries, m.libraries.Load())
	gauge(descProcesses, m.processes.Load())
	counter(descAttachFailed, m.attachFailed.Load())
	gauge(descSideband, m.sideband.Load())
	counter(descSideLost, m.sidebandLost.Load())
	counter(descMalformed, m.malformed.Load())
	counter(descForgot, m.forgot.Load())
	m.attachTime.Collect(out)
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
		{descOutboxGone, prometheus.CounterValue, float64(l.outbox.Dropped + l.full)},
		{descOutboxErrors, prometheus.CounterValue, float64(l.outbox.WriteErrors)},
		{descOutboxDamage, prometheus.CounterValue, float64(l.outbox.Corrupt)},
		{descOutboxOK, prometheus.GaugeValue, writable},
	} {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value)
	}
}
