package simulate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// ranked is what the batches of one rank say. Times are since the fleet's start.
type ranked struct {
	process  schema.Process
	launches []schema.KTime
	waits    []schema.KTime // how long, in each step
	steps    []schema.KTime // ends
}

func (r *ranked) waited() (sum schema.KTime) {
	for _, w := range r.waits {
		sum += w
	}
	return sum
}

func playRank(t *testing.T, f *fleet, index int, until time.Duration) (r ranked) {
	t.Helper()
	h := f.host(index)
	decoder := schema.NewDecoder()
	var b schema.Batch
	play(h, until, func(m batch) {
		if err := decoder.Decode(m.data, &b); err != nil {
			t.Fatal(err)
		}
		if b.Kind == schema.KindHost {
			return
		}
		p := b.Processes[0]
		if len(b.Processes) != 1 || r.process.PID != 0 && p != r.process {
			t.Fatalf("host %d has other processes: %+v, %+v", index, r.process, b.Processes)
		}
		r.process = p
		if b.Events > batchEvents || b.Last > h.uptime+schema.KTime(until) || b.First < p.Start {
			t.Errorf("a batch of %d events from %d to %d, process from %d", b.Events, b.First, b.Last, p.Start)
		}
		switch b.Kind {
		case schema.KindLaunch:
			for i := range b.Events {
				r.launches = append(r.launches, b.Launch(i).Time-h.uptime)
			}
		case schema.KindSync:
			for i := range b.Events {
				e := b.Sync(i)
				r.waits = append(r.waits, schema.KTime(e.Duration))
				r.steps = append(r.steps, e.Time+schema.KTime(e.Duration)-h.uptime)
			}
		}
	})
	return r
}

// TestRanksOfAJob: each rank has a host and a process of its own. The ranks end every step together and launch equally
// often. The slow rank waits least by far; without a slow rank all wait about as long.
func TestRanksOfAJob(t *testing.T) {
	t.Parallel()
	for name, perHost := range map[string]float64{"usual": 300, "slow": 5, "fast": 20_000} {
		until := min(time.Minute, time.Duration(100_000/perHost*1e9))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleetOf(t, 20, perHost, 1)
			f.Jobs, f.SlowRank, f.Rate = 2, 0.3, 20*perHost
			pids := map[uint32]bool{}
			for job := range f.Jobs {
				var all []ranked
				for r := range ranks {
					got := playRank(t, f, job*ranks+r, until)
					p := got.process
					if p.Job != fmt.Sprintf("slurm:%d.0", firstJob+job) || p.Rank != uint32(r+1) || p.Ranks != ranks ||
						pids[p.PID] {
						t.Errorf("host %d has process %+v", job*ranks+r, p)
					}
					pids[p.PID] = true
					all = append(all, got)
				}
				checkSteps(t, all)
				slices.SortStableFunc(all, func(a, b ranked) int { return int(a.waited()) - int(b.waited()) })
				least, second, most := all[0].waited(), all[1].waited(), all[ranks-1].waited()
				if slow := all[0].process.Rank - 1; job == 0 && (slow != slowRank || least > second*3/4) {
					t.Errorf("rank %d waits least: %d ns, the next %d ns", slow, least, second)
				}
				if job == 1 && least < most*3/4 {
					t.Errorf("ranks wait %d to %d ns", least, most)
				}
			}
			if h := f.host(2 * ranks); h.rank != nil {
				t.Error("a host without a job has a rank")
			}
		})
	}
}

// checkSteps compares the steps that all ranks ended, and removes the others.
func checkSteps(t *testing.T, all []ranked) {
	t.Helper()
	steps := slices.MinFunc(all, func(a, b ranked) int { return len(a.steps) - len(b.steps) }).steps
	last := len(steps) - 1
	for r := range all {
		got := &all[r]
		if last < 5 || !slices.Equal(got.steps[:last+1], steps) {
			t.Fatalf("rank %d ends %d steps at other times than the others", r, len(got.steps))
		}
		got.waits = got.waits[:last+1]
		n := 0
		for _, at := range got.launches {
			if at < steps[last] {
				n++
			}
		}
		if n != launches*(last+1) {
			t.Errorf("rank %d: %d launches in %d steps", r, n, last+1)
		}
	}
}

// TestRateOfJobs: ranks make about as many events as the rate says.
func TestRateOfJobs(t *testing.T) {
	t.Parallel()
	f := fleetOf(t, 8, 520, 1)
	f.Jobs, f.Rate = 1, 8*520
	if n := len(playRank(t, f, 0, time.Minute).launches); n < 60*480*8/10 || n > 60*480*11/10 {
		t.Errorf("%d launches a minute, want about %d", n, 60*480)
	}
}
