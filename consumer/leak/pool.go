package leak

import "github.com/gputap/gputap/schema"

// pool is a memory pool of a process. Number 0 stands for those that no allocation names. A pool that
// was destroyed keeps its number while an allocation has it: destroying it frees nothing (measured:
// driver 580, H200).
type pool struct {
	handle    uint64
	since     schema.KTime // return of the call that made it; 0 unseen
	gpu       int32        // ordinal in the process's numbering; noGPU
	limit     uint64       // bytes; 0 none
	imported  bool
	destroyed bool
	live      amount // what was allocated from it by its handle
	reserved  reading
	used      reading
}

// told is an amount that the program asked the driver for.
type reading struct {
	bytes uint64
	at    schema.KTime // 0 never
}

// maxPools bounds the pools of one process; what is above is not told apart.
const maxPools = 256

// CUmemPool_attribute.
const (
	poolReserved = 5
	poolUsed     = 7
)

// pool is the number of the pool that m names.
func (t *Tracker) pool(p *proc, m *schema.Memory) uint8 {
	if i := p.State.poolAt(m.Pool); i != 0 {
		return i
	}
	return p.State.addPool(pool{handle: m.Pool, gpu: t.ordinalOf(m.GPU)})
}

// poolAt finds a pool by its handle, 0 for none.
func (s *state) poolAt(handle uint64) uint8 {
	for i := 1; i < len(s.pools); i++ {
		if q := &s.pools[i]; q.handle == handle && !q.destroyed {
			return uint8(i)
		}
	}
	return 0
}

// addPool gives a pool a number, 0 when all are taken.
func (s *state) addPool(q pool) uint8 {
	if s.pools == nil {
		s.pools = make([]pool, 1)
	}
	for i := 1; i < len(s.pools); i++ {
		if old := &s.pools[i]; old.destroyed && old.live.allocations == 0 {
			*old = q
			return uint8(i)
		}
	}
	if len(s.pools) == maxPools {
		return 0
	}
	s.pools = append(s.pools, q)
	return uint8(len(s.pools) - 1)
}

func (t *Tracker) poolCreate(p *proc, ref *schema.CallRef, m *schema.Memory) {
	if m.Ptr == 0 {
		return
	}
	s := &p.State
	if old := s.poolAt(m.Ptr); old != 0 {
		t.countOverLive(p)
		s.endPool(old)
	}
	q := pool{handle: m.Ptr, since: returned(m), gpu: t.ordinalOf(m.GPU), limit: m.Aux}
	if ref.Class == schema.ClassIPC {
		q.imported, q.limit = true, 0 // Aux names what it was opened by
	}
	s.addPool(q)
}

// poolDestroy drops a pool and what was told of it. What was allocated from it lives on.
func (t *Tracker) poolDestroy(p *proc, m *schema.Memory) {
	s := &p.State
	i := s.poolAt(m.Ptr)
	switch {
	case i == 0:
		t.countUnmatched(p)
	case m.Time < s.pools[i].since:
		t.countLate(p)
	default:
		s.endPool(i)
	}
}

func (s *state) endPool(i uint8) {
	q := &s.pools[i]
	q.destroyed, q.reserved, q.used = true, reading{}, reading{}
}

// poolInfo notes what the driver told the program. A GPU's own pool is known from there alone.
func (t *Tracker) poolInfo(p *proc, m *schema.Memory) {
	if m.Ptr == 0 || (m.Aux != poolReserved && m.Aux != poolUsed) {
		return
	}
	s := &p.State
	i := s.poolAt(m.Ptr)
	if i == 0 {
		if i = s.addPool(pool{handle: m.Ptr, gpu: t.ordinalOf(m.GPU)}); i == 0 {
			return
		}
	}
	q, now := &s.pools[i], reading{m.Bytes, returned(m)}
	if m.Aux == poolReserved {
		q.reserved = now
	} else {
		q.used = now
	}
}
