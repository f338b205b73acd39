package leak

import "github.com/gputap/gputap/schema"

// pool is a memory pool of a process. Index 0 stands for pools that no allocation names. A destroyed pool keeps its
// index while an allocation refers to it: destroying a pool frees nothing (measured: driver 580, H200).
type pool struct {
	handle    uint64
	since     schema.KTime // return time of the call that created it; 0: not seen
	gpu       int32        // ordinal in the process's numbering; noGPU: unknown
	limit     uint64       // bytes; 0: no limit
	imported  bool
	destroyed bool
	live      amount // allocated from it by its handle
	reserved  reading
	used      reading
}

// reading is an amount that the driver reported to the program.
type reading struct {
	bytes uint64
	at    schema.KTime // 0: never
}

// Values of CUmemPool_attribute.
const (
	poolReserved = 5
	poolUsed     = 7
)

// pool returns the index of the pool that m names, adding it if it is new.
func (t *Tracker) pool(p *proc, m *schema.Memory) uint8 {
	if i := p.State.poolAt(m.Pool); i != 0 {
		return i
	}
	return p.State.addPool(pool{handle: m.Pool, gpu: t.ordinalOf(m.GPU)})
}

// poolAt returns the index of the pool with this handle; 0: none.
func (s *state) poolAt(handle uint64) uint8 {
	for i := 1; i < len(s.pools); i++ {
		if q := &s.pools[i]; q.handle == handle && !q.destroyed {
			return uint8(i)
		}
	}
	return 0
}

// addPool stores a pool and returns its index; 0: all indexes are in use.
func (s *state) addPool(q pool) (i uint8) {
	if s.pools == nil {
		s.pools = make([]pool, 1)
	}
	s.pools, i = place(s.pools, q, func(old *pool) bool { return old.destroyed && old.live.allocations == 0 })
	return i
}

func (t *Tracker) poolCreate(p *proc, m *schema.Memory) {
	if m.Ptr == 0 {
		return
	}
	s := &p.State
	if old := s.poolAt(m.Ptr); old != 0 {
		t.count(p, reallocOverLive)
		s.endPool(old)
	}
	q := pool{handle: m.Ptr, since: returned(m), gpu: t.ordinalOf(m.GPU), limit: m.Aux}
	if t.in.Calls[m.Call].Class == schema.ClassIPC {
		q.imported, q.limit = true, 0 // for an import, Aux is the token
	}
	s.addPool(q)
}

// poolDestroy removes a pool and its readings. Memory allocated from the pool stays live.
func (t *Tracker) poolDestroy(p *proc, m *schema.Memory) {
	s := &p.State
	i := s.poolAt(m.Ptr)
	switch {
	case i == 0:
		t.count(p, unmatchedFree)
	case m.Time < s.pools[i].since:
		t.count(p, lateFree)
	default:
		s.endPool(i)
	}
}

func (s *state) endPool(i uint8) {
	q := &s.pools[i]
	q.destroyed, q.reserved, q.used = true, reading{}, reading{}
}

// poolInfo stores a reading of a pool. Programs do not create the default pool of a GPU; it appears only here.
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
