package simulate

import (
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
