package simulate

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Stats are the figures of a simulation. Events are CUDA calls; a heartbeat is a batch without events.
type Stats struct {
	Hosts           int     `json:"hosts"`
	Seconds         float64 `json:"seconds"`
	AskedRate       float64 `json:"asked_events_per_second"`
	Rate            float64 `json:"events_per_second"` // acked, over the whole time
	Batches         uint64  `json:"batches"`           // made
	Events          uint64  `json:"events"`
	Bytes           uint64  `json:"bytes"`
	WithheldBatches uint64  `json:"withheld_batches"`
	WithheldEvents  uint64  `json:"withheld_events"`
	AckedBatches    uint64  `json:"acked_batches"`
	AckedEvents     uint64  `json:"acked_events"`
	AckedBytes      uint64  `json:"acked_bytes"`
	UnackedBatches  uint64  `json:"unacked_batches"`
	UnackedEvents   uint64  `json:"unacked_events"`
	Retries         uint64  `json:"retries"`
	Behind          float64 `json:"behind_seconds"` // age of the oldest batch that is due but not made
	KeptUp          bool    `json:"kept_up"`
}

// late is the delay up to which a simulation counts as on time. It covers scheduling and a round trip.
const late = time.Second

// counts of batches, events and bytes. Any goroutine may read and write them.
type counts struct {
	batches, events, bytes                atomic.Uint64
	withheldBatches, withheldEvents       atomic.Uint64
	ackedBatches, ackedEvents, ackedBytes atomic.Uint64
	retries                               atomic.Uint64
}

// Stats returns the figures so far. Any goroutine may call it at any time.
func (s *Simulator) Stats() Stats {
	c := &s.counts
	t := Stats{
		Hosts: s.options.Hosts, AskedRate: s.options.Rate,
		AckedBatches: c.ackedBatches.Load(), AckedEvents: c.ackedEvents.Load(), AckedBytes: c.ackedBytes.Load(),
		Retries: c.retries.Load(),
		// loaded before Batches, so never more
		WithheldBatches: c.withheldBatches.Load(), WithheldEvents: c.withheldEvents.Load(),
		Batches: c.batches.Load(), Events: c.events.Load(), Bytes: c.bytes.Load(),
	}
	t.UnackedBatches = t.Batches - t.AckedBatches - t.WithheldBatches
	t.UnackedEvents = t.Events - t.AckedEvents - t.WithheldEvents
	began := s.began.Load()
	if began == 0 {
		return t
	}
	now := time.Now().UnixNano()
	t.Seconds = max(time.Duration(cmp.Or(s.ended.Load(), now)-began).Seconds(), 1e-9)
	t.Rate = float64(t.AckedEvents) / t.Seconds
	elapsed := cmp.Or(s.stopped.Load(), now) - s.fleet.start.UnixNano()
	for i := range s.due {
		t.Behind = max(t.Behind, time.Duration(elapsed-s.due[i].Load()).Seconds())
	}
	t.KeptUp = t.Behind < late.Seconds()
	return t
}

func (c *counts) made(b *batch) {
	c.batches.Add(1)
	c.events.Add(uint64(b.events))
	c.bytes.Add(uint64(len(b.data)))
	if b.withheld {
		c.withheldBatches.Add(1)
		c.withheldEvents.Add(uint64(b.events))
	}
}

func (c *counts) acked(b *batch) {
	c.ackedBatches.Add(1)
	c.ackedEvents.Add(uint64(b.events))
	c.ackedBytes.Add(uint64(len(b.data)))
}
