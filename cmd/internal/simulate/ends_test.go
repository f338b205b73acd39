package simulate

import (
	"fmt"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// TestEndsOfHeartbeats expects no call that returned before the time of an end in a batch behind that end, or in a
// later run. The time is at most the age of a batch behind the heartbeat.
func TestEndsOfHeartbeats(t *testing.T) {
	t.Parallel()
	for name, perHost := range map[string]float64{"slow": 40, "usual": 3000, "fast": 100_000} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, restart), func(t *testing.T) {
				t.Parallel()
				f := fleetOf(t, 10, perHost, 1)
				f.Restart, f.Lose = restart, 0.1
				f.Duration = time.Duration(2*f.period) + time.Minute
				f.Jobs = 1
				for _, i := range []int{0, slowRank, 8, 9} {
					h, until := f.host(i), min(f.Duration, 4*time.Minute)
					if h.rank != nil {
						until = min(until, time.Duration(200_000/perHost*1e9))
					}
					checkEnds(t, h, until)
				}
			})
		}
	}
}

func checkEnds(t *testing.T, h *host, until time.Duration) {
	t.Helper()
	type end struct {
		schema.End
		run uint64
	}
	var ends []end
	checked := 0
	decoder := schema.NewDecoder()
	var b schema.Batch
	play(h, until, func(m batch) {
		if err := decoder.Decode(m.data, &b); err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Ends {
			if now := h.uptime + h.nextBeat; e.Through+schema.KTime(11*time.Second) < now || e.Through > now {
				t.Errorf("%s is complete through %d, %d ns before the next heartbeat", e.Kind, e.Through, now-e.Through)
			}
			ends = append(ends, end{e, b.Run})
		}
		first := ^schema.KTime(0)
		for i := range b.Events {
			returned := schema.KTime(b.Time().At(i))
			if b.Kind != schema.KindLaunch {
				returned += schema.KTime(b.Duration().At(i))
			}
			first = min(first, returned)
		}
		for _, e := range ends {
			if e.Kind != b.Kind || e.run == b.Run && b.Seq <= e.Seq {
				continue
			}
			checked++
			if first < e.Through {
				t.Fatalf("%s batch %d has a call that returned at %d, but end %d is complete through %d", b.Kind, b.Seq,
					first, e.Seq, e.Through)
			}
		}
	})
	if checked == 0 {
		t.Error("no batch behind an end")
	}
}
