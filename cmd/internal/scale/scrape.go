package main

import (
	"fmt"
	"strings"
)

const (
	metricBatches  = "gputap_consumer_batches_total"
	metricEvents   = "gputap_consumer_events_total"
	metricMissing  = "gputap_consumer_gap_batches_total"
	metricLag      = "gputap_consumer_lag_messages"
	metricLeases   = "gputap_consumer_leases_lost_total"
	metricRawBytes = "raw_bytes_total"
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
}

func (c *counters) add(d *counters) {
	c.batches, c.useless, c.events = c.batches+d.batches, c.useless+d.useless, c.events+d.events
	c.missing, c.lag, c.leases, c.bytes = c.missing+d.missing, c.lag+d.lag, c.leases+d.leases, c.bytes+d.bytes
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
			if !strings.HasPrefix(line, metricRawBytes+" ") {
				continue
			}
			to = &c.bytes
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
