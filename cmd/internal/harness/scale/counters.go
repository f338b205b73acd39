package main

import (
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
	"github.com/gputap/gputap/schema"
)

const metricBatches = "gputap_consumer_batches_total"

// Metrics of a no-op consumer; it has metricBatches too.
const (
	metricNoopBytes   = "gputap_consumer_noop_bytes_total"
	metricNoopSeconds = "gputap_consumer_noop_seconds"
)

// counters are those of one instance.
type counters struct {
	batches  float64 // messages read
	rejected float64 // of them, invalid or rejected ones
	events   float64
	missing  float64 // batches
	lag      float64 // messages
	leases   float64 // lost ones
	bytes    float64 // of a no-op consumer
	seconds  float64 // of a no-op consumer: from its first message to its last
}

func (c *counters) add(d *counters) {
	c.batches, c.rejected, c.events = c.batches+d.batches, c.rejected+d.rejected, c.events+d.events
	c.missing, c.lag, c.leases, c.bytes = c.missing+d.missing, c.lag+d.lag, c.leases+d.leases, c.bytes+d.bytes
	c.seconds = max(c.seconds, d.seconds)
}

func readCounters(url string) (c counters, err error) {
	page, err := scrape.Get(url+"/metrics", "gputap_consumer_")
	if err != nil {
		return c, err
	}
	return counters{
		batches:  page.Sum(metricBatches),
		rejected: page.Sum(metricBatches, "invalid", "refused"),
		events:   page.Sum("gputap_consumer_events_total"),
		missing:  page.Sum("gputap_consumer_gap_batches_total"),
		lag:      page.Sum("gputap_consumer_lag_messages"),
		leases:   page.Sum("gputap_consumer_leases_lost_total"),
		bytes:    page.Sum(metricNoopBytes),
		seconds:  page.Sum(metricNoopSeconds),
	}, nil
}

// hostCounters are those of a producer.
type hostCounters struct {
	called  float64 // events of certain ops
	events  float64 // all events
	lost    float64 // events
	batches float64 // acked ones
	errors  float64 // failed publishes
	waiting float64 // batches in the spool
	bytes   float64 // acked ones
	probes  float64
}

func readHostCounters(url string, ops []schema.Op) (c hostCounters, err error) {
	page, err := scrape.Get(url, "gputap_producer_")
	if err != nil {
		return c, err
	}
	var names []string
	for _, op := range ops {
		names = append(names, op.String())
	}
	const batches, events = "gputap_producer_batches_total", "gputap_producer_events_total"
	c = hostCounters{
		called:  page.Sum(events, names...),
		events:  page.Sum(events),
		lost:    page.Sum("gputap_producer_events_lost_total"),
		batches: page.Sum(batches, "acked"),
		waiting: page.Sum("gputap_producer_spool_batches"),
		bytes:   page.Sum("gputap_producer_published_bytes_total"),
		probes:  page.Sum("gputap_producer_attached_probes"),
	}
	c.errors = page.Sum(batches) - c.batches
	return c, nil
}
