package leak

import (
	"github.com/gputap/gputap/schema"
)

// cudaContext is one CUDA context of a process. Index 0 stands for unknown contexts: memory allocated there ends with
// the process. An ended context keeps its index while an allocation refers to it.
type cudaContext struct {
	handle  uint64       // 0: unknown
	since   schema.KTime // return time of the call that created it
	gpu     int32        // ordinal in the process's numbering; noGPU: unknown
	users   uint32       // of a primary context: retains minus releases, plus its green contexts
	live    uint32       // allocations and holders that end with it
	primary bool
	green   bool  // part of a GPU; its memory belongs to the primary context
	of      uint8 // of a green context: index of its primary context
	user    bool  // of a green context: counted in users of its primary context
	ended   bool
}

// maxPlaces limits the contexts and the pools of one process. The contexts above the limit count as unknown. The pools
// above it are not distinguished.
const maxPlaces = 256

func newContexts() []cudaContext { return []cudaContext{{gpu: noGPU}} }

// endsWithContext reports whether the end of a context frees memory of this class. Pool, vmm and graph memory
// outlives its context (measured: driver 580, H200).
func endsWithContext(class schema.MemClass) bool {
	switch class {
	case schema.ClassDevice, schema.ClassManaged, schema.ClassPinned, schema.ClassRegistered, schema.ClassArray:
		return true
	}
	return false
}

// context returns the index of the context that ends the event's allocation.
func (t *Tracker) context(p *proc, m *schema.Memory) uint8 {
	if m.Context == 0 {
		return 0
	}
	s, ref := &p.State, &t.in.Contexts[m.Context-1]
	if ref.Handle == 0 {
		return 0
	}
	if s.contexts[s.current].handle != ref.Handle {
		s.current = s.contextAt(ref.Handle)
	}
	if s.current == 0 { // its creation was not seen
		s.current = s.addContext(cudaContext{handle: ref.Handle, gpu: t.ordinalOf(ref.GPU)})
	}
	if c := &s.contexts[s.current]; c.green {
		return c.of
	}
	return s.current
}

func (t *Tracker) ordinalOf(gpu uint32) int32 {
	if gpu == 0 {
		return noGPU
	}
	return int32(t.in.GPUs[gpu-1].Ordinal)
}

// contextAt returns the index of the live context with this handle; 0: none.
func (s *state) contextAt(handle uint64) uint8 {
	for i := range s.contexts {
		if c := &s.contexts[i]; c.handle == handle && handle != 0 && !c.ended {
			return uint8(i)
		}
	}
	return 0
}

// addContext stores a context and returns its index; 0: all indexes are in use.
func (s *state) addContext(c cudaContext) (i uint8) {
	s.contexts, i = place(s.contexts, c, func(old *cudaContext) bool { return old.ended && old.live == 0 })
	return i
}

// place stores v at the first index from 1 on that is free, and returns the index; 0: all 255 are in use.
func place[T any](all []T, v T, free func(*T) bool) ([]T, uint8) {
	for i := 1; i < len(all); i++ {
		if free(&all[i]) {
			all[i] = v
			return all, uint8(i)
		}
	}
	if len(all) == maxPlaces {
		return all, 0
	}
	return append(all, v), uint8(len(all))
}

// primaryOf returns the primary context of a GPU and adds it if needed; 0 if the GPU is unknown.
func (s *state) primaryOf(gpu int32) uint8 {
	if gpu == noGPU {
		return 0
	}
	for i := range s.contexts {
		if c := &s.contexts[i]; c.primary && c.gpu == gpu {
			return uint8(i)
		}
	}
	return s.addContext(cudaContext{gpu: gpu, primary: true})
}

// contextCreate adds a context. A green context is a user of its GPU's primary context.
func (t *Tracker) contextCreate(p *proc, m *schema.Memory) {
	s, gpu := &p.State, t.ordinalOf(m.GPU)
	i := s.contextAt(m.Ptr)
	green := m.Aux != 0 || t.in.Calls[m.Call].Symbol == "cuGreenCtxCreate"
	switch {
	case m.Ptr == 0:
		t.count(p, unknownContext)
		return
	case i != 0 && green && m.Aux != 0:
		return // cuCtxFromGreenCtx returned a second handle of a known green context
	case i != 0:
		t.count(p, reallocOverLive)
		t.dropContext(p, i, returned(m))
	}
	c := cudaContext{handle: m.Ptr, since: returned(m), gpu: gpu, green: green}
	if from := s.contextAt(m.Aux); from != 0 {
		c.of = s.contexts[from].of // an alias is no further user
	} else if green {
		if c.of = s.primaryOf(gpu); c.of != 0 {
			c.user = true
			s.contexts[c.of].users++
		}
	}
	if s.addContext(c) == 0 {
		t.count(p, unknownContext)
	}
}

// knownContext is the rule of a call that ends the context m.Ptr or a use of it.
func knownContext(end func(*Tracker, *proc, uint8, schema.KTime)) func(*Tracker, *proc, *schema.Memory) {
	return func(t *Tracker, p *proc, m *schema.Memory) {
		if i := p.State.contextAt(m.Ptr); i != 0 {
			end(t, p, i, m.Time)
		} else {
			t.count(p, unknownContext)
		}
	}
}

// contextDestroy ends a context. Memory allocated in a green context stays with the primary context. The primary
// context ends if the green context was its last user (measured: driver 580, H200).
func (t *Tracker) contextDestroy(p *proc, i uint8, at schema.KTime) {
	if at < p.State.contexts[i].since {
		t.count(p, lateFree)
		return
	}
	t.dropContext(p, i, at)
}

func (t *Tracker) dropContext(p *proc, i uint8, at schema.KTime) {
	s := &p.State
	c := &s.contexts[i]
	c.ended = true
	if s.current == i {
		s.current = 0
	}
	switch {
	case !c.green:
		t.endContext(p, i, at)
	case c.user:
		t.dropUser(p, c.of, at)
	}
}

// contextRetain adds a user to a primary context.
func (t *Tracker) contextRetain(p *proc, m *schema.Memory) {
	if m.Ptr == 0 {
		t.count(p, unknownContext)
		return
	}
	s := &p.State
	i := s.contextAt(m.Ptr)
	if i == 0 {
		i = s.primaryOf(t.ordinalOf(m.GPU))
		if known := s.contexts[i].handle; i == 0 || (known != 0 && known != m.Ptr) {
			i = s.addContext(cudaContext{gpu: t.ordinalOf(m.GPU)})
		}
	}
	if i == 0 {
		t.count(p, unknownContext)
		return
	}
	c := &s.contexts[i]
	c.handle, c.primary = m.Ptr, true
	c.users++
}

// dropUser removes a user of a primary context. The last one ends it. The number of users is reliable only if all
// calls of the process were seen.
func (t *Tracker) dropUser(p *proc, i uint8, at schema.KTime) {
	c := &p.State.contexts[i]
	if c.users > 0 {
		c.users--
		if c.users > 0 {
			return
		}
		if evidence(p) == complete {
			t.endContext(p, i, at)
			return
		}
	}
	t.count(p, unknownContext)
}

// endContext frees the allocations in context i that are older than time at, and closes the holders there. It visits
// every allocation of the process once, if the context holds any.
func (t *Tracker) endContext(p *proc, i uint8, at schema.KTime) {
	s := &p.State
	if s.contexts[0].live > 0 {
		t.count(p, unknownContext) // some memory of unknown context may be gone too
	}
	if i == 0 || s.contexts[i].live == 0 {
		return
	}
	s.addresses.sweep(&t.slab, func(e entry) bool {
		if e.owner != i || e.since > at {
			return false
		}
		if e.kind == memory {
			if !endsWithContext(s.rows[e.row].class) {
				return false // owner is the index of a pool
			}
			s.withContext.add(e.bytes)
		}
		t.removeFreed(p, e)
		return true
	})
}

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

// pool returns the index of the pool with this handle, adding it if it is new; 0: all indexes are in use.
func (t *Tracker) pool(p *proc, handle uint64, gpu uint32) uint8 {
	if i := p.State.poolAt(handle); i != 0 {
		return i
	}
	return p.State.addPool(pool{handle: handle, gpu: t.ordinalOf(gpu)})
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
	i := t.pool(p, m.Ptr, m.GPU)
	if i == 0 {
		return
	}
	q, now := &p.State.pools[i], reading{m.Bytes, returned(m)}
	if m.Aux == poolReserved {
		q.reserved = now
	} else {
		q.used = now
	}
}
