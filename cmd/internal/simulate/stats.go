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

// tally counts batches. Any goroutine may use it.
type tally struct{ batches, events, bytes atomic.Uint64 }

func (t *tally) add(b *batch) {
	t.batches.Add(1)
	t.events.Add(uint64(b.events))
	t.bytes.Add(uint64(len(b.data)))
}

// Stats returns the figures so far. Any goroutine may call it at any time.
func (s *Simulator) Stats() Stats {
	t := Stats{
		Hosts: s.fleet.Hosts, AskedRate: s.fleet.Rate, Retries: s.retries.Load(),
		AckedBatches: s.acked.batches.Load(), AckedEvents: s.acked.events.Load(), AckedBytes: s.acked.bytes.Load(),
		// loaded before those of all batches, so never more
		WithheldBatches: s.withheld.batches.Load(), WithheldEvents: s.withheld.events.Load(),
		Batches: s.made.batches.Load(), Events: s.made.events.Load(), Bytes: s.made.bytes.Load(),
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
	elapsed := cmp.Or(s.stopped.Load(), now) - s.fleet.Start.UnixNano()
	for i := range s.due {
		t.Behind = max(t.Behind, time.Duration(elapsed-s.due[i].Load()).Seconds())
	}
	t.KeptUp = t.Behind < 1 // a second covers scheduling and a round trip
	return t
}
