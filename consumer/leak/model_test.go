package leak

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// world models the driver's state of one process with one GPU. It uses plain lists and linear search.
type world struct {
	pieces   []*piece
	maps     []worldMap
	contexts []*worldContext
	tokens   uint64

	withContext                            uint64
	realloc, lateFree, unmatched, unknownH uint64
	unknownC                               uint64
}

type piece struct {
	handle  bool // its key is a handle
	key     uint64
	bytes   uint64
	class   schema.MemClass
	context *worldContext // nil: unknown
	since   schema.KTime
	refs    int
	holder  uint64 // token; 0: memory of its own
}

type worldMap struct {
	ptr, bytes uint64
	since      schema.KTime
	of         *piece
}

type worldContext struct {
	handle  uint64
	since   schema.KTime
	users   int
	primary bool
	green   bool
}

func (w *world) at(handle bool, key uint64) *piece {
	for _, p := range w.pieces {
		if p.handle == handle && p.key == key && p.refs > 0 {
			return p
		}
	}
	return nil
}

func (w *world) mapped(p *piece) bool {
	for _, m := range w.maps {
		if m.of == p {
			return true
		}
	}
	return false
}

// clean removes pieces without references and mappings.
func (w *world) clean() {
	kept := w.pieces[:0]
	for _, p := range w.pieces {
		if p.refs > 0 || w.mapped(p) {
			kept = append(kept, p)
		}
	}
	w.pieces = kept
}

func (w *world) appear(p *piece) {
	if old := w.at(p.handle, p.key); old != nil {
		w.realloc++
		old.refs = 0
	}
	p.refs = 1
	w.pieces = append(w.pieces, p)
	w.clean()
}

// end removes a reference from the piece at a key, if the call applies to that piece.
func (w *world) end(handle bool, key uint64, at schema.KTime, may func(*piece) bool) {
	switch p := w.at(handle, key); {
	case p == nil || !may(p):
		if handle {
			w.unknownH++
		} else {
			w.unmatched++
		}
	case at < p.since:
		w.lateFree++
	default:
		p.refs--
		w.clean()
	}
}

func (w *world) mapRange(ptr, bytes, handle uint64, returned schema.KTime) {
	p := w.at(true, handle)
	if p == nil {
		w.unknownH++
	}
	kept := w.maps[:0:0]
	for _, m := range w.maps {
		if m.ptr < ptr+bytes && ptr < m.ptr+m.bytes {
			w.realloc++
			continue
		}
		kept = append(kept, m)
	}
	w.maps = append(kept, worldMap{ptr, bytes, returned, p})
	w.clean()
}

func (w *world) unmap(ptr, bytes uint64, at schema.KTime) {
	kept := w.maps[:0:0]
	dropped, late := false, false
	for _, m := range w.maps {
		inside := m.ptr >= ptr && m.ptr+m.bytes <= ptr+bytes
		if inside && at >= m.since {
			dropped = true
			continue
		}
		late = late || inside
		kept = append(kept, m)
	}
	w.maps = kept
	if late {
		w.lateFree++
	} else if !dropped {
		w.unmatched++
	}
	w.clean()
}

func (w *world) retain(handle, ptr uint64, returned schema.KTime) {
	p := w.at(true, handle)
	for _, m := range w.maps {
		if m.ptr <= ptr && ptr < m.ptr+m.bytes {
			p = m.of
		}
	}
	if p == nil {
		w.unknownH++
		return
	}
	if p.refs == 0 {
		if old := w.at(true, handle); old != nil {
			w.realloc++
			old.refs = 0
		}
		p.key, p.since = handle, returned
	}
	p.refs++
	w.clean()
}

func (w *world) open(ptr, token, in uint64, returned schema.KTime) {
	if old := w.at(false, ptr); old != nil && old.holder == token {
		old.refs++
		return
	}
	w.appear(&piece{key: ptr, class: schema.ClassIPC, since: returned, holder: token, context: w.current(in)})
}

func (w *world) context(handle uint64) *worldContext {
	for _, c := range w.contexts {
		if c.handle == handle {
			return c
		}
	}
	return nil
}

// current returns the context that an allocation in handle belongs to.
func (w *world) current(handle uint64) *worldContext {
	if handle == 0 {
		return nil
	}
	c := w.context(handle)
	if c == nil {
		c = &worldContext{handle: handle}
		w.contexts = append(w.contexts, c)
	}
	if c.green {
		return w.primary()
	}
	return c
}

func (w *world) primary() *worldContext {
	for _, c := range w.contexts {
		if c.primary {
			return c
		}
	}
	c := &worldContext{primary: true}
	w.contexts = append(w.contexts, c)
	return c
}

func goes(class schema.MemClass) bool {
	return class != schema.ClassPool && class != schema.ClassVMM && class != schema.ClassIPC &&
		class != schema.ClassGraph
}

func (w *world) endContext(c *worldContext, at schema.KTime) {
	for _, p := range w.pieces {
		if p.context == nil && p.holder == 0 && goes(p.class) {
			w.unknownC++
			break
		}
	}
	for _, p := range w.pieces {
		if p.context == c && p.since <= at { // pieces of other classes have no context
			w.withContext += p.bytes
			p.refs = 0
		}
	}
	w.clean()
}

func (w *world) leave(c *worldContext, at schema.KTime) {
	if c.users == 0 {
		w.unknownC++
		return
	}
	if c.users--; c.users == 0 {
		w.endContext(c, at)
	}
}

func (w *world) destroy(c *worldContext, at schema.KTime) {
	for i := range w.contexts {
		if w.contexts[i] == c {
			w.contexts = append(w.contexts[:i:i], w.contexts[i+1:]...)
			break
		}
	}
	if c.green {
		w.leave(w.primary(), at)
	} else {
		w.endContext(c, at)
	}
}

func (w *world) create(handle uint64, green bool, returned schema.KTime) {
	if old := w.context(handle); old != nil {
		w.realloc++
		w.destroy(old, returned)
	}
	w.contexts = append(w.contexts, &worldContext{handle: handle, since: returned, green: green})
	if green {
		w.primary().users++
	}
}

func (w *world) retainPrimary(handle uint64) {
	c := w.primary()
	c.handle = handle
	c.users++
}

func TestRandomCallsMatchModel(t *testing.T) {
	t.Parallel()
	randomCalls(t, 6)
}

// randomCalls applies random calls of all kinds, many of them invalid, to the fold and to the model, and compares both.
func randomCalls(t *testing.T, seeds uint64) {
	const primary = 1 // handle; 2 and 3 are green contexts, 4 to 7 others
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := &world{}
		h := consumertest.Memory(t, "gpu-01")
		p := h.Process(42, 1, "train")
		p.GPU = &schema.GPU{UUID: "GPU-1"}
		tracker := New(Config{})
		now := schema.KTime(1000)
		w.primary().handle = primary
		p.RetainContext(primary, 1)
		w.primary().users = 1
		for range 3000 {
			now += schema.KTime(rng.Uint64N(20))
			w.step(rng, p, now)
			if rng.IntN(40) == 0 {
				apply(t, tracker, h.Batch())
				w.compare(t, tracker, seed)
			}
			if t.Failed() {
				return
			}
		}
		p.Exit(now)
		apply(t, tracker, h.Batch())
		if left := tracker.slabLive(); left != 0 {
			t.Fatalf("seed %d: %d entries left after the exit", seed, left)
		}
	}
}

func (w *world) step(rng *rand.Rand, p *consumertest.Process, now schema.KTime) {
	key, tid, d, bytes := 0x7f00+rng.Uint64N(40), rng.Uint32N(5), rng.Uint64N(40), rng.Uint64N(1<<20)
	ptr, size := 1<<40+rng.Uint64N(12)*mb, (1+rng.Uint64N(2))*mb
	returned := now + schema.KTime(d)
	anything := func(*piece) bool { return true }
	p.Context = rng.Uint64N(8)
	switch rng.IntN(24) {
	case 0, 1, 2, 3, 4, 5:
		calls := []string{"cuMemAlloc_v2", "cuMemAllocManaged", "cuMemHostAlloc", "cuMemHostRegister_v2",
			"cuArrayCreate_v2", "cuMemAllocAsync"}
		classes := []schema.MemClass{schema.ClassDevice, schema.ClassManaged, schema.ClassPinned,
			schema.ClassRegistered, schema.ClassArray, schema.ClassPool}
		i := rng.IntN(len(calls))
		p.Call(calls[i], tid, schema.Memory{Time: now, Duration: d, Ptr: key, Bytes: bytes})
		made := &piece{key: key, bytes: bytes, class: classes[i], since: returned}
		if goes(made.class) {
			made.context = w.current(p.Context)
		}
		w.appear(made)
	case 6, 7, 8, 9:
		p.Free(tid, key, now, d)
		w.end(false, key, now, anything)
	case 10:
		p.Create(tid, key, bytes, now, d)
		w.appear(&piece{handle: true, key: key, bytes: bytes, class: schema.ClassVMM, since: returned})
	case 11:
		w.tokens++
		p.Import(tid, key, 1<<40+w.tokens, now, d)
		w.appear(&piece{handle: true, key: key, class: schema.ClassVMM, since: returned, holder: 1<<40 + w.tokens})
	case 12, 13:
		p.Map(tid, ptr, size, key, now, d)
		w.mapRange(ptr, size, key, returned)
	case 14:
		p.Unmap(tid, ptr, size, now, d)
		w.unmap(ptr, size, now)
	case 15:
		p.Retain(tid, key, ptr, now, d)
		w.retain(key, ptr, returned)
	case 16, 17:
		p.Release(tid, key, now, d)
		w.end(true, key, now, anything)
	case 18:
		token := 1<<41 + rng.Uint64N(2)
		p.Open(tid, key, token, now, d)
		w.open(key, token, p.Context, returned)
	case 19:
		p.Close(tid, key, now, d)
		w.end(false, key, now, func(p *piece) bool { return p.holder != 0 })
	default:
		w.contextStep(rng, p, now, d)
	}
}

func (w *world) contextStep(rng *rand.Rand, p *consumertest.Process, now schema.KTime, d uint64) {
	const primary = 1
	m := schema.Memory{Time: now, Duration: d, Ptr: 2 + rng.Uint64N(6)}
	green := m.Ptr < 4
	switch rng.IntN(6) {
	case 0:
		symbol := "cuCtxCreate_v4"
		if green {
			symbol = "cuGreenCtxCreate"
		}
		p.Call(symbol, p.PID, m)
		w.create(m.Ptr, green, now+schema.KTime(d))
	case 1:
		p.Call("cuCtxDestroy_v2", p.PID, m)
		switch c := w.context(m.Ptr); {
		case c == nil:
			w.unknownC++
		case now < c.since:
			w.lateFree++
		default:
			w.destroy(c, now)
		}
	case 2, 3:
		p.RetainContext(primary, now)
		w.retainPrimary(primary)
	case 4:
		p.ReleaseContext(primary, now)
		w.leave(w.primary(), now)
	case 5:
		p.ResetContext(primary, now)
		w.endContext(w.primary(), now)
	}
}

func (w *world) compare(t *testing.T, tracker *Tracker, seed uint64) {
	t.Helper()
	r := tracker.Report()
	type totals struct{ live, n, host, holders, withContext, realloc, late, unmatched, unknownH, unknownC uint64 }
	got := &r.Processes[0]
	want := totals{
		withContext: w.withContext, realloc: w.realloc, late: w.lateFree, unmatched: w.unmatched,
		unknownH: w.unknownH, unknownC: w.unknownC,
	}
	for _, p := range w.pieces {
		switch {
		case p.holder != 0:
			want.holders++
		case p.class == schema.ClassPinned || p.class == schema.ClassRegistered:
			want.host += p.bytes
		default:
			want.live += p.bytes
			want.n++
		}
	}
	c := r.Counters
	if have := (totals{got.LiveBytes, got.LiveAllocations, got.HostLiveBytes, got.HolderCount, got.WithContextBytes,
		c.ReallocOverLive, c.LateFrees, c.UnmatchedFrees, c.UnknownHandles, c.UnknownContexts}); have != want {
		t.Errorf("seed %d:\n got %+v\nwant %+v", seed, have, want)
	}
	balanced(t, tracker)
}

// An allocation needs its slab entry and its share of the index, nothing else.
func TestAllocationNeedsAtMost64Bytes(t *testing.T) {
	t.Parallel()
	const n = 50_000
	tracker := million(t, n)
	entries := len(tracker.slab.chunks) * chunkLen * int(unsafe.Sizeof(allocation{}))
	for _, p := range tracker.table.All() {
		entries += 4 * cap(p.State.addresses.heads)
	}
	if each := float64(entries) / n; each > 64 {
		t.Errorf("%.1f bytes per allocation, want at most 64", each)
	}
}
