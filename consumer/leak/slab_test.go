package leak

import (
	"bytes"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
)

// Addresses chosen to share a bucket of the first hash do not share one of the second.
func TestCollidingAddressesAreRehashed(t *testing.T) {
	t.Parallel()
	inverse := uint64(0x9E3779B97F4A7C15)
	for range 6 { // Newton's method: each step doubles the number of correct low bits
		inverse *= 2 - 0x9E3779B97F4A7C15*inverse
	}
	tests := []struct {
		name    string
		address func(n uint64) uint64
	}{
		{"addresses with equal hashes", func(n uint64) uint64 { return inverse * (7<<32 | n) }},
		{"addresses with equal low bits", func(n uint64) uint64 { return n<<48 | 0x1000 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const n = 32_000
			tracker := New(Config{})
			h := consumertest.Memory(t, "gpu-01")
			p := h.Process(42, 1, "train")
			for i := range uint64(n) {
				p.Alloc(1, test.address(i+1), 1, 10, 1)
			}
			apply(t, tracker, h.Batch())
			x := &tracker.table.All()[0].State.addresses
			for _, i := range x.heads {
				length := 0
				for ; i != 0; i = tracker.slab.at(i).chain {
					length++
				}
				if length > 8*maxChain { // chance may make one longer than maxChain
					t.Fatalf("%d allocations in one bucket", length)
				}
			}
			for i := range uint64(n) {
				p.Free(1, test.address(i+1), 20, 1)
			}
			apply(t, tracker, h.Batch())
			if r := tracker.Report(); r.Totals.LiveBytes != 0 || r.Counters != (Counters{}) || tracker.slabLive() != 0 {
				t.Errorf("got %+v, %+v", r.Totals, r.Counters)
			}
		})
	}
}

// State and view do not depend on the order of buckets.
func TestBucketOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	bucketOrders(t, 2, 80)
}

func bucketOrders(t *testing.T, seeds uint64, steps int) {
	for seed := range seeds {
		calm, scattered := shortKeep(), shortKeep()
		for _, step := range consumertest.Traffic(t, seed, steps) {
			consumertest.Take(t, calm, step)
			consumertest.Take(t, scattered, step)
			for _, p := range scattered.table.All() {
				p.State.addresses.rehash(&scattered.slab)
				p.State.handles.rehash(&scattered.slab)
			}
		}
		got, want := consumertest.Sections(t, scattered), consumertest.Sections(t, calm)
		for i := range want {
			if len(got) != len(want) || !bytes.Equal(got[i].Data, want[i].Data) {
				t.Errorf("seed %d: section %d of %d differs, of host %q", seed, i, len(want), want[i].Host)
			}
		}
		if view(t, scattered) != view(t, calm) {
			t.Errorf("seed %d: the views differ", seed)
		}
	}
}

// TestMappingsWithoutAllocations: gputap attached after a process had created its memory, and no process has allocated
// since.
func TestMappingsWithoutAllocations(t *testing.T) {
	t.Parallel()
	tracker, h := New(Config{OnMovement: func(m *Movement) { t.Errorf("unexpected movement: %+v", m) }}),
		consumertest.Memory(t, "gpu-01")
	h.Process(42, 1, "train").Map(1, 1<<40, 2<<20, 9, 10, 1).Retain(1, 9, 1<<40, 11, 1)
	apply(t, tracker, h.Batch())
	tracker.Live(time.Time{})
	consumertest.Restore(t, New(Config{}), consumertest.Sections(t, tracker))
	if c := tracker.Report().Counters; c != (Counters{UnknownHandles: 2}) {
		t.Errorf("got %+v", c)
	}
}
