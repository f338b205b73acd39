package job

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// pair is a rank fold and a job fold that gets its summaries.
type pair struct {
	tb     testing.TB
	ranks  *rank.Fold
	jobs   *Fold
	at     time.Duration // since the start of the job
	fired  []change
	alerts []alert.Alert

	decoder *schema.Decoder
	batch   *schema.Batch
}

// change is an alert that fired or cleared, and when that was known.
type change struct {
	state, rank string
	at          time.Duration
}

func newPair(tb testing.TB) *pair {
	p := &pair{tb: tb, decoder: schema.NewDecoder(), batch: &schema.Batch{}}
	p.jobs = New(Config{Severity: alert.Warning, OnAlert: func(a alert.Alert) {
		p.alerts = append(p.alerts, a)
		who, _, _ := strings.Cut(a.Message, " of job")
		p.fired = append(p.fired, change{a.State, who, p.at})
	}})
	p.ranks = rank.New(rank.Config{Publish: p.publish})
	return p
}

func (p *pair) publish(s rank.Summary) {
	if err := p.decoder.Decode(s.Message, p.batch); err != nil {
		p.tb.Fatal(err)
	}
	if err := p.jobs.Apply(p.batch); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *pair) take(messages []consumertest.Message) {
	for _, m := range messages {
		p.at = m.At
		consumertest.Take(p.tb, p.ranks, consumertest.Step{Message: m.Data})
	}
}

// The slow rank is named within 20 s of event time, and nobody else: the ranks of gloo pause between two copies, those
// of NCCL are in a sync, or in the queue of launches.
func TestSlowRankIsNamed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		ranks int
		slow  int
		step  func(*consumertest.Job)
		where string
	}{
		{"gloo", 4, 3, consumertest.Gloo(100, 3, 20*time.Millisecond), "between DtoH and HtoD"},
		{"gloo, rank 0", 5, 0, consumertest.Gloo(30, 0, 20*time.Millisecond), "between DtoH and HtoD"},
		{"nccl", 8, 5, consumertest.NCCL(30, 5, 100*time.Millisecond, 30*time.Millisecond, 0), "calls that wait"},
		{"nccl, queued", 8, 2, consumertest.NCCL(200, 2, 100*time.Millisecond, 40*time.Millisecond, 0.9),
			"between launch and launch"},
		{"nccl, long steps", 8, 2, consumertest.NCCL(30, 2, 1700*time.Millisecond, 510*time.Millisecond, 0),
			"calls that wait"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for offset := range time.Duration(2) {
				p := newPair(t)
				j := &consumertest.Job{Name: "slurm:7", Ranks: row.ranks, Step: row.step, Random: source(9),
					Offset: offset * 100 * time.Millisecond}
				p.take(j.Messages(t, 45*time.Second))
				if len(p.fired) != 1 || p.fired[0].rank != fmt.Sprint("Rank ", row.slow) ||
					p.fired[0].at > 20*time.Second {
					t.Fatalf("fired %v, want rank %d within 20 s", p.fired, row.slow)
				}
				a := p.alerts[0]
				if !strings.Contains(a.Message, row.where) || a.Host != fmt.Sprint("slurm:7-", row.slow) ||
					a.PID != uint32(100+row.slow) || a.Job != "slurm:7" || a.Rule != "straggler" ||
					a.Evidence.Host != "slurm:7" || a.Evidence.Kind != "rank" || a.Evidence.Seq == 0 ||
					a.Value > a.Baseline/2 || a.Score > -3 || a.Start.IsZero() {
					t.Errorf("the alert is %+v", a)
				}
				r := p.jobs.Report()
				if len(r) != 1 || r[0].State != Straggler || !slices.Equal(r[0].Slow, []uint32{uint32(row.slow)}) ||
					len(r[0].Members) != row.ranks {
					t.Errorf("the report is %+v", r)
				}
				t.Log(p.fired[0].at, a.Message)
			}
		})
	}
}

// A window has no end of most steps that last longer than it, but a sum of eight has. The state is saved and restored
// in the middle of such a sum.
func TestLongSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{4, 6, 8, 10} {
		for seed := range uint64(4) {
			j := &consumertest.Job{Name: "slurm:7", Ranks: 8, Random: source(seed),
				Step: consumertest.NCCL(30, 2, step*time.Second, step*300*time.Millisecond, 0)}
			whole, before, after := newPair(t), newPair(t), newPair(t)
			messages := j.Messages(t, 3*time.Minute)
			whole.take(messages)
			if len(whole.fired) != 1 || whole.fired[0].rank != "Rank 2" || whole.fired[0].at > time.Minute {
				t.Errorf("steps of %d s, seed %d: fired %v, want rank 2 within a minute", step, seed, whole.fired)
			}
			cut := len(messages) / 9
			before.take(messages[:cut])
			consumertest.Restore(t, after.jobs, consumertest.Sections(t, before.jobs))
			consumertest.Restore(t, after.ranks, consumertest.Sections(t, before.ranks))
			after.take(messages[cut:])
			if got := slices.Concat(before.fired, after.fired); !slices.Equal(got, whole.fired) {
				t.Errorf("steps of %d s, seed %d: after a restart %v, want %v", step, seed, got, whole.fired)
			}
		}
	}
}

// Where ranks wait for longer than a window stays open, the end of the wait is known for some and not for others. No
// rank that waits is named.
func TestLongWaitsNameNobodyElse(t *testing.T) {
	t.Parallel()
	const step = 15 * time.Second
	for seed := range uint64(12) {
		j := &consumertest.Job{Name: "slurm:7", Ranks: 8, Random: source(seed),
			Step: consumertest.NCCL(30, 2, step, 3*step/10, 0)}
		p := newPair(t)
		p.take(j.Messages(t, 6*time.Minute))
		if len(p.fired) == 0 || slices.ContainsFunc(p.fired, func(c change) bool { return c.rank != "Rank 2" }) {
			t.Errorf("seed %d: fired %v, want rank 2 alone", seed, p.fired)
		}
	}
}

// A host whose clock is wrong does not keep its job from being judged: neither if it is the slow one, nor if it sends
// the first or the last summary.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	for wrong, slow := range map[int]int{0: 5, 1: 1, 7: 5, 5: 5} {
		for _, by := range []time.Duration{-9 * time.Minute, 7*time.Minute + 123*time.Millisecond, 45 * time.Second} {
			p := newPair(t)
			j := &consumertest.Job{Name: "slurm:7", Ranks: 8, Random: source(9), Clock: func(host int) time.Duration {
				if host == wrong {
					return by
				}
				return 0
			}, Step: consumertest.NCCL(30, slow, 100*time.Millisecond, 30*time.Millisecond, 0)}
			p.take(j.Messages(t, 45*time.Second))
			if len(p.fired) != 1 || p.fired[0].rank != fmt.Sprint("Rank ", slow) || p.fired[0].at > 22*time.Second {
				t.Errorf("the clock of host %d is wrong by %s: fired %v, want rank %d", wrong, by, p.fired, slow)
				continue
			}
			own := time.Duration(0)
			if slow == wrong {
				own = by
			}
			if off := p.alerts[0].Time.Sub(consumertest.Wall.Add(own)); off < 0 || off > 20*time.Second {
				t.Errorf("the alert fires at %s of the host's clock", off)
			}
		}
	}
}

// NATS is away for 24 s. Then the hosts publish what they kept, one after another in any order. The clock of one host
// is right, or wrong.
func TestOutageOfNATS(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := source(seed)
		wrong, slow, begin := random.IntN(8), random.IntN(8), time.Duration(random.IntN(12_000))*time.Millisecond
		by := []time.Duration{0, 25 * time.Second, -40 * time.Second, 3 * time.Minute, -9 * time.Minute}[seed%5]
		j := &consumertest.Job{Name: "slurm:7", Ranks: 8, Random: random, Clock: func(host int) time.Duration {
			if host == wrong {
				return by
			}
			return 0
		}, Step: consumertest.NCCL(30, slow, 100*time.Millisecond, 30*time.Millisecond, 0)}
		messages, end, order := j.Messages(t, 80*time.Second), begin+24*time.Second, random.Perm(8)
		for i := range messages {
			if at := &messages[i].At; *at >= begin && *at < end {
				host := consumertest.Decode(t, messages[i].Data).Host
				*at = end + time.Duration(order[host[len(host)-1]-'0'])
			}
		}
		slices.SortStableFunc(messages, func(a, b consumertest.Message) int { return cmp.Compare(a.At, b.At) })
		p := newPair(t)
		p.take(messages)
		r := p.jobs.Report()[0]
		if len(p.fired) != 1 || p.fired[0].rank != fmt.Sprint("Rank ", slow) || p.fired[0].at > end+22*time.Second ||
			r.State != Straggler || len(r.Missing) > 0 {
			t.Errorf("seed %d: host %d is wrong by %s, away from %s: fired %v, want rank %d; %s without %v", seed,
				wrong, by, begin, p.fired, slow, r.State, r.Missing)
		}
	}
}

// Shards are read at different speeds. A shard that is 40 s late keeps nothing from being judged; one that is later
// than a minute lets only the windows be judged that it shares with the others. Nobody is named wrongly.
func TestLateShards(t *testing.T) {
	t.Parallel()
	for _, until := range []time.Duration{40 * time.Second, 5 * time.Minute} {
		p := newPair(t)
		j := &consumertest.Job{Name: "slurm:7", Ranks: 8, PerHost: 4, Random: source(9), Every: 5 * time.Second,
			Step: consumertest.NCCL(5, 1, 400*time.Millisecond, 120*time.Millisecond, 0)}
		messages := j.Messages(t, until)
		slices.SortStableFunc(messages, func(a, b consumertest.Message) int {
			return strings.Compare(consumertest.Decode(t, a.Data).Host, consumertest.Decode(t, b.Data).Host)
		})
		p.take(messages)
		if len(p.fired) != 1 || p.fired[0].rank != "Rank 1" {
			t.Errorf("late by %s: fired %v, want rank 1", until, p.fired)
		}
	}
}

// ordinary is a job with the noise of ordinary ones: steps vary, some are disturbed on one rank, ranks differ by one or
// two percent for good, and rank 0 logs now and then. A step takes least to one second.
func ordinary(seed uint64, most int, least time.Duration) *consumertest.Job {
	r := source(seed)
	ranks := 4 + r.IntN(most-3)
	work := least + time.Duration(r.IntN(1000-int(least/time.Millisecond)))*time.Millisecond
	noise, disturbed, exchange := 0.005+0.095*r.Float64(), 0.02*r.Float64(), 0.02+0.3*r.Float64()
	skew := make([]float64, ranks)
	for i := range skew {
		skew[i] = 1 + 0.01*r.NormFloat64()
	}
	gloo, steps := r.IntN(2) == 0, 0
	step := func(j *consumertest.Job) {
		steps++
		for rank := range ranks {
			took := j.Noise(time.Duration(float64(work)*skew[rank]), noise)
			if r.Float64() < disturbed/float64(ranks) {
				took += work / 2
			}
			if rank == 0 && steps%20 == 0 {
				took += 30 * time.Millisecond
			}
			for range 3 {
				j.Call(rank, consumertest.JobLaunch, 0)
				j.Pause(rank, took/3)
			}
			if gloo {
				j.Call(rank, consumertest.JobDtoH, time.Millisecond)
			} else {
				j.Call(rank, consumertest.JobLaunch, 0)
			}
		}
		end := slices.Max(j.At) + time.Duration(exchange*float64(work))
		for rank := range ranks {
			if gloo {
				j.At[rank] = j.Noise(end-j.At[rank], 0.02) + j.At[rank]
				j.Call(rank, consumertest.JobHtoD, time.Millisecond)
			} else {
				j.Call(rank, consumertest.JobWait, j.Noise(end-j.At[rank], 0.02))
			}
		}
	}
	return &consumertest.Job{Name: fmt.Sprint("slurm:", seed), Ranks: ranks, PerHost: 1 + r.IntN(8), Step: step,
		Every:  10 * time.Second,
		Random: r, Offset: time.Duration(r.IntN(60_000)) * time.Millisecond}
}

// No rank of 100 ordinary jobs is named in ten minutes.
func TestOrdinaryJobsRaiseNothing(t *testing.T) {
	t.Parallel()
	quiet(t, 100, 6, 800*time.Millisecond)
}

func quiet(t *testing.T, jobs uint64, most int, least time.Duration) {
	t.Helper()
	for seed := range jobs {
		p := newPair(t)
		j := ordinary(seed, most, least)
		p.take(j.Messages(t, 10*time.Minute))
		if len(p.fired) > 0 {
			t.Errorf("job %d of %d ranks: %v\n%s", seed, j.Ranks, p.fired, p.alerts[0].Message)
		}
		if r := p.jobs.Report(); len(r) != 1 || r[0].State != Running || len(r[0].Members) != j.Ranks {
			t.Errorf("job %d: %+v", seed, r)
		}
	}
}
