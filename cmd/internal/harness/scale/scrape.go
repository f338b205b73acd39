package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/schema"
)

const (
	metricBatches    = "gputap_consumer_batches_total"
	metricEvents     = "gputap_consumer_events_total"
	metricMissing    = "gputap_consumer_gap_batches_total"
	metricLag        = "gputap_consumer_lag_messages"
	metricLeases     = "gputap_consumer_leases_lost_total"
	metricRawBytes   = "raw_bytes_total"
	metricRawSeconds = "raw_seconds"
)

// counters are of one instance.
type counters struct {
	batches float64 // messages dealt with
	useless float64 // of them, those that were invalid or refused
	events  float64
	missing float64 // batches
	lag     float64 // messages
	leases  float64 // that were lost
	bytes   float64 // a raw reader's
	seconds float64 // from its first message to its last
}

func (c *counters) add(d *counters) {
	c.batches, c.useless, c.events = c.batches+d.batches, c.useless+d.useless, c.events+d.events
	c.missing, c.lag, c.leases, c.bytes = c.missing+d.missing, c.lag+d.lag, c.leases+d.leases, c.bytes+d.bytes
	c.seconds = max(c.seconds, d.seconds)
}

func scrape(url string) (c counters, err error) {
	page, err := get(url + "/metrics")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "gputap_consumer_") && !strings.HasPrefix(line, "raw_") {
			continue
		}
		name, labels, _ := strings.Cut(line, "{")
		var to *float64
		switch name {
		case metricBatches:
			to = &c.batches
		case metricEvents:
			to = &c.events
		case metricMissing:
			to = &c.missing
		case metricLeases:
			to = &c.leases
		case metricLag:
			to = &c.lag
		default:
			switch name, _, _ := strings.Cut(line, " "); name {
			case metricRawBytes:
				to = &c.bytes
			case metricRawSeconds:
				to = &c.seconds
			default:
				continue
			}
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(strings.TrimSpace(line), ' '):], &v); err != nil {
			return c, fmt.Errorf("%s: %q: %w", url, line, err)
		}
		*to += v
		if name == metricBatches && (strings.Contains(labels, `"invalid"`) || strings.Contains(labels, `"refused"`)) {
			c.useless += v
		}
	}
	return c, nil
}

// hostCounters are a producer's.
type hostCounters struct {
	called  float64 // events of some ops
	events  float64 // of all
	lost    float64 // events
	batches float64 // acked
	errors  float64 // publishes
	waiting float64 // batches
	bytes   float64 // acked
	probes  float64
}

func hostCount(page []byte, ops []schema.Op) (c hostCounters, err error) {
	for line := range strings.Lines(string(page)) {
		rest, ours := strings.CutPrefix(strings.TrimSpace(line), "gputap_producer_")
		name, value, ok := strings.Cut(rest, " ")
		if !ours || !ok {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return c, fmt.Errorf("page of the producer: %q: %w", line, err)
		}
		switch base, labels, _ := strings.Cut(name, "{"); base {
		case "events_total":
			c.events += v
			if slices.ContainsFunc(ops, func(op schema.Op) bool { return strings.Contains(labels, strconv.Quote(op.String())) }) {
				c.called += v
			}
		case "events_lost_total":
			c.lost += v
		case "batches_total":
			if strings.Contains(labels, `"acked"`) {
				c.batches = v
			} else {
				c.errors += v
			}
		case "spool_batches":
			c.waiting = v
		case "published_bytes_total":
			c.bytes = v
		case "attached_probes":
			c.probes = v
		}
	}
	return c, nil
}
