package leak

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// maxTop is the largest number of allocations that Top returns.
const maxTop = 1000

// Allocation is one piece of live memory.
type Allocation struct {
	process.Info        // the process that allocated it
	TID          uint32 // the thread that allocated it
	ThreadComm   string
	Ptr          uint64 // address; handle of VMM memory
	Bytes        uint64
	GPU          string // UUID; "": unknown
	Ordinal      int    // of the GPU in the process's numbering; -1: unknown
	Inferred     bool   // the producer inferred the GPU
	Class        schema.MemClass
	At           time.Time // return time of the call that allocated it
	Symbol       string    // name of that call
}

// candidate is an allocation with its sort keys.
type candidate struct {
	bytes uint64
	at    int64 // wall clock in ns: KTimes of two hosts cannot be compared
	key   uint64
	i     uint32
}

// Top returns the n largest live allocations, at most 1,000, the largest first and, among equals, the oldest first. It
// visits a limited number of allocations. If more than that have sizes within an eighth of each other, it sees only the
// newest ones of each host.
func (t *Tracker) Top(n int) []Allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.largest(min(n, maxTop))
	top := make([]Allocation, 0, len(found))
	for _, c := range found {
		top = append(top, t.describe(t.slab.at(c.i)))
	}
	return top
}

func (t *Tracker) largest(n int) []candidate {
	if n <= 0 {
		return nil
	}
	scan := max(64*n, t.topScan)
	var found []candidate
	hosts := slices.SortedFunc(maps.Values(t.hosts), func(a, b *host) int { return a.id.Compare(b.id) })
	var heads []uint32 // of one size class, for every host that has one
	for size := numSizes - 1; size >= 0 && len(found) < n; size-- {
		heads = heads[:0]
		for _, m := range hosts {
			if size < len(m.sizes.heads) && m.sizes.heads[size] != 0 {
				heads = append(heads, m.sizes.heads[size])
			}
		}
		for k, i := range heads {
			// the next hosts share the part that a host does not use
			end := len(found) + (scan-len(found))/(len(heads)-k)
			for i != 0 && len(found) < end {
				a := t.slab.at(i)
				found = append(found, candidate{a.bytes, t.wall(a), a.key, i})
				i = a.next
			}
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key))
	})
	return found[:min(n, len(found))]
}

func (t *Tracker) describe(a *allocation) Allocation {
	by := &t.threads.slots[a.thread]
	p := by.process
	r := &p.State.rows[a.row]
	return Allocation{
		Info: p.Info, TID: by.tid, ThreadComm: by.comm,
		Ptr: a.key, Bytes: a.bytes, GPU: r.uuid, Ordinal: int(r.gpu), Inferred: r.inferred, Class: r.class,
		At:     time.Unix(0, t.wall(a)).UTC(),
		Symbol: t.origins.rows[a.origin].Symbol,
	}
}

func (t *Tracker) wall(a *allocation) int64 {
	return int64(a.since) + t.threads.slots[a.thread].process.State.boot.offset
}

// numSizes is the number of size classes, eight per power of two: allocations of one class differ by less than an
// eighth.
const numSizes = 62 * 8

func sizeOf(bytes uint64) int {
	if bytes < 8 {
		return int(bytes)
	}
	octave := bits.Len64(bytes) - 1
	return (octave-2)*8 + int(bytes>>(octave-3)&7)
}

// sizes lists the live allocations of one host by size class, the newest first.
type sizes struct {
	heads []uint32 // by size class; grows on demand
}

func (z *sizes) link(s *slab, i uint32) { s.link(z.head(s.at(i).bytes), i) }

func (z *sizes) unlink(s *slab, i uint32) { s.unlink(z.head(s.at(i).bytes), i) }

// head returns the head of the size class of an allocation.
func (z *sizes) head(bytes uint64) *uint32 {
	size := sizeOf(bytes)
	if missing := size + 1 - len(z.heads); missing > 0 {
		z.heads = append(z.heads, make([]uint32, missing)...)
	}
	return &z.heads[size]
}
