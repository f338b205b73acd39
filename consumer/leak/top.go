package leak

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

const (
	maxTop  = 1000 // allocations that Top returns
	topScan = 4096 // allocations that Top may visit, if 64 for each one it returns are fewer
)

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

// candidate is an allocation with its time.
type candidate struct {
	*allocation
	at time.Time // wall clock: KTimes of two hosts cannot be compared
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
		top = append(top, t.describe(c))
	}
	return top
}

func (t *Tracker) largest(n int) []candidate {
	if n <= 0 {
		return nil
	}
	return first(n, t.visit(n, max(64*n, topScan)))
}

// first returns the n largest of those found, of equal ones the oldest.
func first(n int, found []candidate) []candidate {
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), a.at.Compare(b.at), cmp.Compare(a.key, b.key))
	})
	return found[:min(n, len(found))]
}

// visit returns at least n allocations, size class by size class from the largest on, but at most scan.
func (t *Tracker) visit(n, scan int) (found []candidate) {
	hosts := slices.SortedFunc(maps.Values(t.hosts), func(a, b *host) int { return a.id.Compare(b.id) })
	var heads []uint32 // of one size class, for every host that has one
	for size := numSizes - 1; size >= 0 && len(found) < n; size-- {
		heads = heads[:0]
		for _, m := range hosts {
			if size < len(m.sizes) && m.sizes[size] != 0 {
				heads = append(heads, m.sizes[size])
			}
		}
		for k, i := range heads {
			// the next hosts share the part that a host does not use
			end := len(found) + (scan-len(found))/(len(heads)-k)
			for i != 0 && len(found) < end {
				a := t.slab.at(i)
				found = append(found, candidate{a, t.threads.slots[a.thread].process.State.boot.wall(a.since)})
				i = a.next
			}
		}
	}
	return found
}

func (t *Tracker) describe(c candidate) Allocation {
	by := &t.threads.slots[c.thread]
	r := &by.process.State.rows[c.row]
	return Allocation{
		Info: by.process.Info, TID: by.tid, ThreadComm: by.comm, Ptr: c.key, Bytes: c.bytes,
		GPU: r.uuid, Ordinal: int(r.gpu), Inferred: r.inferred, Class: r.class, At: c.at,
		Symbol: t.origins.rows[c.origin].Symbol,
	}
}

// TopRow is the live allocations of one thread that have one size, class and GPU.
type TopRow struct {
	Allocation // the oldest of them
	Count      uint64
	TotalBytes uint64
	Partial    bool // there may be more of them, and older ones: not all were visited
}

// rowScan is how many allocations TopRows may visit.
const rowScan = 1 << 13

// TopRows collapses equal live allocations and returns the n rows with the most bytes, at most 1,000. It visits only
// the 8,192 largest allocations, as Top does; unseen is the number of all others.
func (t *Tracker) TopRows(n int) (rows []TopRow, unseen uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	type rowID struct {
		bytes  uint64
		thread uint32
		row    uint8
	}
	type tally struct {
		oldest candidate
		count  uint64
	}
	found, all := t.visit(rowScan, rowScan), []tally{}
	index := make(map[rowID]int, len(found))
	for _, m := range t.hosts {
		unseen += uint64(m.live)
	}
	smallest := uint64(math.MaxUint64)
	for _, c := range found {
		smallest = min(smallest, c.bytes)
		id := rowID{c.bytes, c.thread, c.row}
		i, known := index[id]
		if !known {
			i, index[id] = len(all), len(all)
			all = append(all, tally{oldest: c})
		}
		r := &all[i]
		r.count++
		if cmp.Or(c.at.Compare(r.oldest.at), cmp.Compare(c.key, r.oldest.key)) < 0 {
			r.oldest = c
		}
	}
	slices.SortFunc(all, func(a, b tally) int {
		return cmp.Or(cmp.Compare(b.count*b.oldest.bytes, a.count*a.oldest.bytes), a.oldest.at.Compare(b.oldest.at),
			cmp.Compare(a.oldest.key, b.oldest.key))
	})
	for _, r := range all[:min(len(all), max(n, 0), maxTop)] {
		rows = append(rows, TopRow{t.describe(r.oldest), r.count, r.count * r.oldest.bytes,
			unseen > uint64(len(found)) && r.oldest.bytes == smallest})
	}
	return rows, unseen - uint64(len(found))
}

// Group is live memory that one thread allocated since growth began, in one class and size class. The class of tensors
// is "tensor".
type Group struct {
	TID         uint32
	Thread      string // its name
	Class       string
	SizeClass   uint64 // the largest power of two that is not above the sizes
	Bytes       uint64 // without young allocations, which may be freed soon
	Allocations uint64
	Oldest      time.Time
}

// String describes a group for a sentence.
func (g *Group) String() string {
	of := "1 allocation"
	if g.Allocations != 1 {
		of = fmt.Sprintf("%d allocations", g.Allocations)
	}
	return fmt.Sprintf("%s in %s of %s and more (%s) by thread %d (%s)", iec(g.Bytes), of, iec(g.SizeClass), g.Class,
		g.TID, g.Thread)
}

func reportGroup(g *trend.Group, h *boot) Group {
	return Group{TID: g.TID, Thread: g.Thread, Class: g.Class.String(), SizeClass: g.SizeClass(), Bytes: g.Bytes,
		Allocations: g.Allocations, Oldest: h.wall(g.Oldest)}
}

// group finds the groups of a device whose memory grows. It visits every live allocation of the process once.
func (t *Tracker) group(p *proc, device uint8) {
	s, d := &p.State, &p.State.devices[device]
	survivors := trend.NewSurvivors(&d.verdict, schema.KTime(t.cfg.Window))
	since := survivors.Since()
	t.eachLive(p, func(a *allocation) {
		if s.rows[a.row].device != device || a.since < since {
			return
		}
		if g := survivors.Add(uint64(a.thread)<<8|uint64(a.row), a.since, a.bytes); g != nil {
			by := &t.threads.slots[a.thread]
			g.TID, g.Thread, g.Class = by.tid, by.comm, s.rows[a.row].class
		}
	})
	d.groups, d.found = survivors.Groups(), survivors.Bytes
}

func (c *coder) group(g *trend.Group) {
	snapshot.Uint(c.Codec, &g.TID)
	c.Byte(&g.SizeBits)
	c.String(&g.Thread)
	process.CodeWord(c.Codec, &g.Class, schema.ParseMemClass)
	snapshot.Uint(c.Codec, &g.Bytes, &g.Allocations)
	snapshot.Uint(c.Codec, &g.Oldest)
}

// eachLive visits the live memory of a process. If most of the slab belongs to the process, it reads the slab in order.
// That is ten times as fast as by the index, where each allocation is in another cache line.
func (t *Tracker) eachLive(p *proc, visit func(*allocation)) {
	if 2*p.State.held > uint64(t.slab.used) {
		t.eachInSlab(p, visit)
	} else {
		t.eachInIndex(&p.State, func(e entry) { visit(e.allocation) })
	}
}

func (t *Tracker) eachInSlab(p *proc, visit func(*allocation)) {
	for i := uint32(1); i <= t.slab.used; i++ {
		if a := t.slab.at(i); a.kind == memory && t.threads.slots[a.thread].process == p {
			visit(a)
		}
	}
}

// eachInIndex visits the live memory of a process.
func (t *Tracker) eachInIndex(s *state, visit func(entry)) {
	for _, x := range []*index{&s.addresses, &s.handles} {
		for _, i := range x.heads {
			for ; i != 0; i = t.slab.at(i).chain {
				if e := t.slab.entry(i); e.kind == memory {
					visit(e)
				}
			}
		}
	}
	seen := map[uint32]bool{}
	for _, g := range s.mappings { // only mappings keep some memory
		if e := t.slab.entry(g.memory); e.number != 0 && e.kind == memory && e.refs == 0 && !seen[e.number] {
			seen[e.number] = true
			visit(e)
		}
	}
}
