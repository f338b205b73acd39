package job

import (
	"fmt"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// Each rank has two processes that use CUDA: one trains, and one with the same environment checked the GPU and waits,
// such as its parent. The one that launches most counts, in either order.
func TestTwoProcessesOfARank(t *testing.T) {
	t.Parallel()
	for _, helper := range []uint32{1, 100} { // before or after the process that trains
		p := newPair(t)
		for window := range 12 {
			for rank, share := range []float64{.3, .3, .1, .3} {
				b := schema.NewBuilder(schema.KindRank)
				b.Origin = fmt.Sprint("gpu-", rank)
				at := schema.KTime(time.Duration(window) * schema.RankWindow)
				for _, pid := range []uint32{min(helper, 50), max(helper, 50)} {
					of := b.Process(schema.Process{PID: pid, Comm: "train", Job: "j", Rank: uint32(rank) + 1, Ranks: 4})
					th := b.Thread(schema.Thread{Process: of, TID: pid})
					e := schema.Rank{Time: at, Thread: th, To: schema.Launching, Count: 3}
					if pid == 50 {
						e.Count = 1000
					}
					b.AddRank(&e)
					if pid == 50 {
						b.AddRank(&schema.Rank{Time: at, Thread: th, To: schema.Syncing, Count: 10,
							Duration: uint64(share * float64(schema.RankWindow))})
					}
				}
				(&rows{pair: p, seq: uint64(window)}).publish(b)
			}
		}
		if len(p.fired) != 1 || p.fired[0].rank != "Rank 2" || p.alerts[0].PID != 50 {
			t.Errorf("helper %d: fired %v", helper, p.fired)
		}
		for _, m := range p.jobs.Report()[0].Members {
			if m.ID.PID != 50 || m.Waiting < .05 {
				t.Errorf("helper %d: the member is %d, waits %g", helper, m.ID.PID, m.Waiting)
			}
		}
	}
}
