package leak

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestLargestOfEqualsASortedList compares the largest allocations of one of two processes with a list that the test
// keeps. Both processes use the same addresses, and some allocations are freed.
func TestLargestOfEqualsASortedList(t *testing.T) {
	t.Parallel()
	type live struct{ bytes, ptr uint64 }
	random := rand.New(rand.NewPCG(1, 2))
	h := consumertest.Memory(t, "gpu-01")
	p, other := h.Process(42, 1, "train"), h.Process(43, 1, "train")
	held := map[uint64]uint64{}
	for i := range uint64(500) {
		ptr, at := 1<<30+i<<20, schema.KTime(10*i+10)
		held[ptr] = 1 + random.Uint64N(1<<uint(1+random.IntN(30)))
		p.Alloc(7, ptr, held[ptr], at, 1)
		other.Alloc(9, ptr, 1<<31+i, at+1, 1)
		if gone := 1<<30 + random.Uint64N(i+1)<<20; held[gone] > 0 && i%3 == 0 {
			p.Free(7, gone, at+2, 1)
			delete(held, gone)
		}
	}
	tracker := New(Config{})
	apply(t, tracker, h.Batch())
	var want []live
	for ptr, bytes := range held {
		want = append(want, live{bytes, ptr})
	}
	slices.SortFunc(want, func(a, b live) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.ptr, b.ptr))
	})
	id := tracker.Report().Processes[0].ID
	for _, n := range []int{-1, 0, 1, 20, 400, maxTop, maxTop + 1} {
		var got []live
		for _, a := range tracker.LargestOf(id, n) {
			if a.ID != id || a.TID != 7 {
				t.Fatalf("allocation of %+v, thread %d", a.ID, a.TID)
			}
			got = append(got, live{a.Bytes, a.Ptr})
		}
		if !slices.Equal(got, want[:max(0, min(n, len(want)))]) {
			t.Errorf("the largest %d are\n%v\nwant\n%v", n, got, want[:max(0, min(n, len(want)))])
		}
	}
	if got := tracker.LargestOf(schema.ProcessID{Host: "none"}, 5); len(got) != 0 {
		t.Errorf("an unknown host has %v", got)
	}
}

// TestLargestOfVisitsABoundedNumber asks for a process whose host has as many larger allocations of another one as
// LargestOf visits, and again after one of those was freed.
func TestLargestOfVisitsABoundedNumber(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	tracker := New(Config{})
	small, p := h.Process(43, 1, "serve"), h.Process(42, 1, "train")
	small.Alloc(9, 1<<20, 1024, 5, 1)
	for i := range uint64(ownScan) {
		p.Alloc(7, 1<<30+i<<20, 1<<20, schema.KTime(10+i), 1)
		if i%4096 == 4095 {
			apply(t, tracker, h.Batch())
		}
	}
	id := tracker.Report().Processes[0].ID
	if got := tracker.LargestOf(id, 5); id.PID != 43 || len(got) != 0 {
		t.Fatalf("visited more than %d allocations: %+v", ownScan, got)
	}
	p.Free(7, 1<<30, ownScan+20, 1)
	apply(t, tracker, h.Batch())
	if got := tracker.LargestOf(id, 5); len(got) != 1 || got[0].Bytes != 1024 {
		t.Errorf("got %+v, want 1024 bytes", got)
	}
}
