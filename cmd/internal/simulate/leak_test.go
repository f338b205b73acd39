package simulate

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// TestLeakingRank: one rank of the first job allocates so many bytes in a second, and the others nothing after their
// start. The steps of the ranks stay the same.
func TestLeakingRank(t *testing.T) {
	t.Parallel()
	const perSecond, seconds = 16 << 20, 60
	f := fleetOf(t, 16, 300, 1)
	f.Jobs, f.LeakRank, f.Rate = 2, perSecond, 16*300
	decoder := schema.NewDecoder()
	var b schema.Batch
	for index := range 2 * ranks {
		var held uint64
		addresses := map[uint64]bool{}
		play(f.host(index), seconds*time.Second, func(m batch) {
			if err := decoder.Decode(m.data, &b); err != nil {
				t.Fatal(err)
			}
			if b.Kind != schema.KindMemory {
				return
			}
			for i := range b.Events {
				if e := b.Memory(i); b.Calls[e.Call].Op == schema.OpAlloc && !addresses[e.Ptr] {
					addresses[e.Ptr] = true
					held += e.Bytes
				}
			}
		})
		leaked := held - 8<<30
		if index == leakingRank && (leaked < perSecond*seconds*9/10 || leaked > perSecond*seconds*11/10) {
			t.Errorf("rank %d leaks %d bytes in %d s, want about %d", index, leaked, seconds, perSecond*seconds)
		}
		if index != leakingRank && leaked != 0 {
			t.Errorf("host %d leaks %d bytes", index, leaked)
		}
	}
}

// TestBlocksOfRanksAreApart: a rank frees nothing, so no two of its blocks overlap. They are aligned as the driver
// aligns them.
func TestBlocksOfRanksAreApart(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int64{0, 10_007, 16 << 20} {
		f := fleetOf(t, 16, 300, 1)
		f.Jobs, f.LeakRank, f.Rate = 2, perSecond, 16*300
		decoder := schema.NewDecoder()
		var b schema.Batch
		for index := range 2 * ranks {
			var blocks []schema.Memory
			play(f.host(index), 3*time.Minute, func(m batch) {
				if err := decoder.Decode(m.data, &b); err != nil {
					t.Fatal(err)
				}
				for i := range b.Events {
					if b.Kind != schema.KindMemory {
						break
					}
					if op := b.Calls[b.Memory(i).Call].Op; op != schema.OpAlloc {
						t.Fatalf("host %d has an event %v", index, op)
					}
					blocks = append(blocks, b.Memory(i))
				}
			})
			if leaks := perSecond > 0 && index == leakingRank; len(blocks) < 8 || leaks != (len(blocks) > 8) {
				t.Errorf("host %d has %d blocks", index, len(blocks))
			}
			slices.SortFunc(blocks, func(a, b schema.Memory) int { return cmp.Compare(a.Ptr, b.Ptr) })
			end := uint64(index) << addressBits
			for _, m := range blocks {
				large := m.Bytes >= 1<<20
				if m.Ptr < end || m.Ptr%512 != 0 || large && m.Ptr%(2<<20) != 0 {
					t.Fatalf("host %d: %d bytes at %#x, and the block before ends at %#x", index, m.Bytes, m.Ptr, end)
				}
				end = m.Ptr + m.Bytes
			}
			if end > uint64(index+1)<<addressBits {
				t.Errorf("host %d has a block that ends at %#x", index, end)
			}
		}
	}
}
