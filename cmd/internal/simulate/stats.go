package simulate

import (
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

// counts are written by the workers. Any goroutine may read them.
type counts struct {
	running                                      atomic.Bool // the workers exist
	batches, events, bytes                       atomic.Uint64
	withheldBatches, withheldEvents              atomic.Uint64
	ackedBatches, ackedEvents, ackedBytes, again atomic.Uint64
}

// Stats returns the figures so far. Any goroutine may call it at any time.
func (s *Simulator) Stats() Stats {
	c := &s.counts
	t := Stats{
		Hosts: s.options.Hosts, AskedRate: s.options.Rate,
		AckedBatches: c.ackedBatches.Load(), AckedEvents: c.ackedEvents.Load(), AckedBytes: c.ackedBytes.Load(),
		Retries: c.again.Load(),
		// loaded before Batches, so never more
		WithheldBatches: c.withheldBatches.Load(), WithheldEvents: c.withheldEvents.Load(),
		Batches: c.batches.Load(), Events: c.events.Load(), Bytes: c.bytes.Load(),
	}
	t.UnackedBatches = t.Batches - t.AckedBatches - t.WithheldBatches
	t.UnackedEvents = t.Events - t.AckedEvents - t.WithheldEvents
	began, ended := s.began.Load(), s.ended.Load()
	if began == 0 {
		return t
	}
	if ended == 0 {
		ended = time.Now().UnixNano()
	}
	t.Seconds = max(time.Duration(ended-began).Seconds(), 1e-9)
	t.Rate = float64(t.AckedEvents) / t.Seconds
	if c.running.Load() {
		for _, w := range s.workers {
			t.Behind = max(t.Behind, time.Duration(w.behind.Load()).Seconds())
		}
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
