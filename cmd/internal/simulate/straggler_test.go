package simulate

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/job"
	rankfold "github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

var seeds = flag.Uint64("seeds", 8, "number of simulations with a slow rank")

// TestSlowRankIsNamed: the rule straggler names the slow rank of the first job, and no rank of the others, within 20 s.
// A host of the first job has a wrong clock: if it is wrong by less than 20 s, naming takes as much longer. Steps of a
// second fill a window of two seconds unevenly, so a few simulations need more time.
func TestSlowRankIsNamed(t *testing.T) {
	t.Parallel()
	for name, perHost := range map[string]float64{"usual": 300, "steps of a second": 26} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fast := uint64(0)
			for seed := range *seeds {
				after, wrong := namedAfter(t, perHost, 1+seed)
				t.Logf("seed %d: named after %s; a clock is wrong by %s", 1+seed, after, wrong)
				if wrong < 20*time.Second {
					after -= wrong
				}
				switch {
				case after > 0 && after <= 20*time.Second:
					fast++
				case perHost == 300 || after <= 0 || after > 30*time.Second:
					t.Errorf("seed %d: after %s", 1+seed, after)
				}
			}
			t.Logf("%d of %d are named within 20 s and the error of a clock below 20 s", fast, *seeds)
			if 8*fast < 7**seeds {
				t.Error("too few")
			}
		})
	}
}

// namedAfter simulates five jobs for a minute and returns the event time at which the slow rank is named; 0: never. It
// also returns by how much a clock of the job is wrong.
func namedAfter(t *testing.T, perHost float64, seed uint64) (after, wrong time.Duration) {
	t.Helper()
	f := fleetOf(t, 5*ranks, perHost, seed)
	f.Jobs, f.SlowRank, f.Rate = 5, 0.3, 5*ranks*perHost
	type message struct {
		due  schema.KTime
		data []byte
	}
	var all []message
	for i := range f.Hosts {
		h := f.host(i)
		if i < ranks {
			off := time.Duration(h.header.ClockOffset - f.Start.UnixNano() + int64(h.uptime))
			wrong = max(wrong, off, -off)
		}
		for due, _, _ := h.next(); due <= schema.KTime(time.Minute); due, _, _ = h.next() {
			all = append(all, message{due, h.make().data})
		}
	}
	slices.SortStableFunc(all, func(a, b message) int { return int(a.due) - int(b.due) })
	at, decoder, batch := time.Duration(0), schema.NewDecoder(), &schema.Batch{}
	jobs := job.New(job.Config{Severity: alert.Warning, OnAlert: func(a alert.Alert) {
		if a.Host != "sim-0003" || a.State != alert.Firing || after > 0 {
			t.Errorf("seed %d: after %s: %s %s", seed, at, a.State, a.Message)
		}
		after = at
	}})
	folds := rankfold.New(rankfold.Config{Publish: func(s rankfold.Summary) {
		if err := decoder.Decode(s.Message, batch); err != nil {
			t.Fatal(err)
		}
		if err := jobs.Apply(batch); err != nil {
			t.Fatal(err)
		}
	}})
	for _, m := range all {
		at = time.Duration(m.due)
		consumertest.Take(t, folds, consumertest.Step{Message: m.data})
	}
	if len(jobs.Report()) != f.Jobs {
		t.Errorf("%d jobs", len(jobs.Report()))
	}
	return after, wrong
}
