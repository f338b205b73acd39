package leak

import (
	"slices"

	"github.com/gputap/gputap/schema"
)

// card is one physical GPU of one host, found by its UUID. Processes number their GPUs independently.
type card struct {
	live uint64 // bytes of all processes
	last sample
}

const (
	maxCards   = 256 // per host
	maxSamples = 64  // GPUs per process whose memory the process queried
)

// A nil *card stands for a GPU whose UUID is unknown.

// change adds n times so many live bytes; n may be negative.
func (c *card) change(bytes uint64, n int) {
	if c != nil {
		c.live += uint64(n) * bytes
	}
}

// cardOf returns the card with this UUID, adding it if it is new; nil if the UUID is unknown.
func (h *boot) cardOf(uuid string) *card {
	c := h.cards[uuid]
	if c == nil && uuid != "" && len(h.cards) < maxCards {
		if h.cards == nil {
			h.cards = map[string]*card{}
		}
		c = &card{}
		h.cards[uuid] = c
	}
	return c
}

// sample is one answer of cuMemGetInfo, with the live bytes at that moment.
type sample struct {
	gpu         int32 // ordinal in the process's numbering; noGPU: unknown
	uuid        string
	inferred    bool
	at          schema.KTime
	used, total uint64 // bytes of the whole GPU
	own, all    uint64 // live bytes of the process that asked, and of all processes of its host
}

// memInfo stores an answer of cuMemGetInfo with the live bytes of that GPU.
func (t *Tracker) memInfo(p *proc, m *schema.Memory) {
	s := &p.State
	now := sample{gpu: noGPU, at: returned(m), used: m.Bytes, total: m.Aux}
	if m.GPU > 0 {
		g := &t.in.GPUs[m.GPU-1]
		now.gpu, now.uuid, now.inferred = int32(g.Ordinal), g.UUID, g.Inferred
	}
	for i := range s.rows {
		if r := &s.rows[i]; r.gpu == now.gpu && r.class.OnGPU() {
			now.own += r.live.bytes
		}
	}
	now.all = now.own
	if c := s.boot.cardOf(now.uuid); c != nil {
		now.all = c.live
		c.last = now
	}
	i := slices.IndexFunc(s.samples, func(old sample) bool { return old.gpu == now.gpu })
	switch {
	case i >= 0:
		s.samples[i] = now
	case len(s.samples) < maxSamples:
		s.samples = append(s.samples, now)
	}
}
