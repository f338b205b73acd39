package leak

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// model is a simple reference for allocations and frees.
type model struct {
	live              map[uint64]life
	bytes, peak       uint64
	realloc, lateFree uint64
	unmatched         uint64
	allocated, freed  uint64
}

type life struct {
	bytes uint64
	since schema.KTime
}

func (m *model) alloc(ptr, bytes uint64, at schema.KTime) {
	if old, ok := m.live[ptr]; ok {
		m.realloc++
		m.bytes -= old.bytes
		m.freed += old.bytes
	}
	m.live[ptr] = life{bytes, at}
	m.bytes += bytes
	m.allocated += bytes
	m.peak = max(m.peak, m.bytes)
}

func (m *model) free(ptr uint64, at schema.KTime) {
	switch l, ok := m.live[ptr]; {
	case !ok:
		m.unmatched++
	case at < l.since:
		m.lateFree++
	default:
		m.bytes -= l.bytes
		m.freed += l.bytes
		delete(m.live, ptr)
	}
}

func TestRandomAllocationsMatchModel(t *testing.T) {
	t.Parallel()
	randomAllocations(t, 3)
}

// randomAllocations applies random allocations and frees to the fold and to the model, and compares both.
func randomAllocations(t *testing.T, seeds uint64) {
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := model{live: map[uint64]life{}}
		h := consumertest.Memory(t, "gpu-01")
		p := h.Process(42, 1, "train")
		tracker := New(Config{})
		now := schema.KTime(1000)
		for range 20 {
			for range 1000 {
				now += schema.KTime(rng.Uint64N(20))
				ptr, tid := 0x7f0000000000+rng.Uint64N(700)<<9, rng.Uint32N(3000)
				if rng.IntN(5) < 3 {
					bytes, duration := rng.Uint64N(1<<(rng.Uint64N(30)+1)), rng.Uint64N(50)
					m.alloc(ptr, bytes, now+schema.KTime(duration))
					p.Alloc(tid, ptr, bytes, now, duration)
				} else {
					m.free(ptr, now)
					p.Free(tid, ptr, now, rng.Uint64N(50))
				}
			}
			apply(t, tracker, h.Batch())
			compare(t, tracker, &m)
		}
		p.Exit(now)
		apply(t, tracker, h.Batch())
		if got := tracker.Report().Processes[0]; got.UnfreedBytes != m.bytes || got.LiveBytes != 0 {
			t.Fatalf("seed %d, exit: %d unfreed, %d live, want %d and 0", seed, got.UnfreedBytes, got.LiveBytes,
				m.bytes)
		}
		if empty := tracker.slabLive(); empty != 0 {
			t.Fatalf("seed %d: %d allocations left after the exit", seed, empty)
		}
	}
}

func compare(t *testing.T, tracker *Tracker, m *model) {
	t.Helper()
	r := tracker.Report()
	p := &r.Processes[0]
	var byThread amount
	for _, u := range p.Threads {
		byThread.bytes += u.LiveBytes
		byThread.allocations += u.LiveAllocations
	}
	if byThread.bytes != p.LiveBytes || byThread.allocations != p.LiveAllocations {
		t.Fatalf("threads hold %+v, the process %d in %d", byThread, p.LiveBytes, p.LiveAllocations)
	}
	if p.LiveBytes != m.bytes || p.LiveAllocations != uint64(len(m.live)) || p.PeakBytes != m.peak {
		t.Fatalf("got %d bytes in %d, peak %d; want %d in %d, peak %d",
			p.LiveBytes, p.LiveAllocations, p.PeakBytes, m.bytes, len(m.live), m.peak)
	}
	c := r.Counters
	if c.ReallocOverLive != m.realloc || c.LateFrees != m.lateFree || c.UnmatchedFrees != m.unmatched {
		t.Fatalf("got %+v, want realloc %d, late %d, unmatched %d", c, m.realloc, m.lateFree, m.unmatched)
	}
	for _, w := range tracker.workloads.index {
		if w.allocated != m.allocated || w.freed != m.freed || w.allocated != w.freed+p.LiveBytes {
			t.Fatalf("workload: allocated %d, freed %d; want %d, %d", w.allocated, w.freed, m.allocated, m.freed)
		}
	}
	var largest []uint64
	for _, l := range m.live {
		largest = append(largest, l.bytes)
	}
	slices.Sort(largest)
	slices.Reverse(largest)
	for i, a := range tracker.Top(10) {
		if a.Bytes != largest[i] || m.live[a.Ptr].bytes != a.Bytes {
			t.Fatalf("top %d: got %d bytes at %#x, want %d", i, a.Bytes, a.Ptr, largest[i])
		}
	}
}

// slabLive counts everything that size classes, indexes, threads and the slab still hold.
func (t *Tracker) slabLive() int {
	live := int(t.slab.used)
	for i := t.slab.free; i != 0; i = t.slab.at(i).next {
		live--
	}
	for _, m := range t.hosts {
		for _, head := range m.sizes {
			if head != 0 {
				live++
			}
		}
	}
	for _, s := range t.threads.slots {
		live += int(s.live)
	}
	return live
}

func TestSameBytesSameState(t *testing.T) {
	t.Parallel()
	messages := traffic(t, 7, 40)
	var reports [2]Report
	var tops [2][]Allocation
	var pages [2][]byte
	for i := range reports {
		tracker := New(Config{})
		for _, m := range messages {
			apply(t, tracker, consumertest.Decode(t, m))
		}
		reports[i], tops[i], pages[i] = tracker.Report(), tracker.Top(50), consumertest.Page(t, tracker)
	}
	if !reflect.DeepEqual(reports[0], reports[1]) {
		t.Error("reports differ")
	}
	if !reflect.DeepEqual(tops[0], tops[1]) {
		t.Error("tops differ")
	}
	if !bytes.Equal(pages[0], pages[1]) {
		t.Error("metric pages differ")
	}
}

// traffic returns batches of several processes that allocate, free, map, fail and exit.
func traffic(t *testing.T, seed uint64, batches int) (messages [][]byte) {
	rng := rand.New(rand.NewPCG(seed, 2))
	h := consumertest.Memory(t, "gpu-01")
	now := schema.KTime(1000)
	for n := range batches {
		for range 300 {
			now += schema.KTime(rng.Uint64N(1_000))
			p := h.Process(100+rng.Uint32N(8), schema.KTime(1+n/10), "train")
			p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: rng.Uint32N(2)}
			k, tid := rng.Uint64N(50)+1, rng.Uint32N(9)
			switch rng.IntN(12) {
			case 0, 1, 2, 3:
				p.Alloc(tid, k<<20, rng.Uint64N(1<<20), now, rng.Uint64N(500))
			case 4, 5, 6:
				p.Free(tid, k<<20, now, rng.Uint64N(500))
			case 7:
				p.Create(tid, k, k<<21, now, 10).Map(tid, k<<40, k<<21, k, now+20, 10)
			case 8:
				p.Unmap(tid, k<<40, k<<21, now, 10)
			case 9:
				p.Release(tid, k, now, 10)
			case 10:
				p.Fail("cuMemAlloc_v2", tid, 2, 1<<50, now)
			case 11:
				if rng.IntN(20) == 0 {
					p.Exit(now)
				}
			}
		}
		messages = append(messages, h.Message())
	}
	return messages
}
