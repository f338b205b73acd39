package job

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/consumer/snapshot"
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

// Shards are read at different speeds. A shard that is 40 s late keeps nothing from being judged; one that is later than
// a minute lets only the windows be judged that it shares with the others. Nobody is named wrongly.
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
	return &consumertest.Job{Name: fmt.Sprint("slurm:", seed), Ranks: ranks, PerHost: 1 + r.IntN(8), Step: step, Every: 10 * time.Second,
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

// rows builds the summaries of a job by hand: windows of 2 s with the share of the time that each rank waits in syncs.
type rows struct {
	pair   *pair
	window int
	seq    uint64
	leave  func(rank int) bool // ranks that send nothing
}

func (r *rows) add(shares ...float64) {
	for rank, share := range shares {
		if r.leave != nil && r.leave(rank) {
			continue
		}
		r.send(rank, len(shares), share)
	}
	r.window++
}

func (r *rows) send(rank, ranks int, share float64) {
	b := schema.NewBuilder(schema.KindRank)
	b.Origin = fmt.Sprint("gpu-", rank)
	p := schema.Process{PID: uint32(rank) + 1, Comm: "train", User: "ada", Job: "j", Rank: uint32(rank) + 1,
		Ranks: uint32(ranks)}
	th := b.Thread(schema.Thread{Process: b.Process(p)})
	at := schema.KTime(time.Duration(r.window) * schema.RankWindow)
	b.AddRank(&schema.Rank{Time: at, Thread: th, To: schema.Launching, Count: 10})
	b.AddRank(&schema.Rank{Time: at, Thread: th, To: schema.Syncing, Count: 10,
		Duration: uint64(share * float64(schema.RankWindow))})
	r.publish(b)
}

func (r *rows) publish(b *schema.Builder) {
	r.seq++
	r.pair.publish(rank.Summary{Message: b.Encode(&schema.Header{Cluster: "c", Host: "j", BootID: b.Origin,
		Run: 1, Seq: r.seq, ClockOffset: consumertest.Wall.UnixNano()})})
}

func (r *rows) end(rank, ranks int) {
	b := schema.NewBuilder(schema.KindRank)
	b.Origin = fmt.Sprint("gpu-", rank)
	p := schema.Process{PID: uint32(rank) + 1, Comm: "train", User: "ada", Job: "j", Rank: uint32(rank) + 1,
		Ranks: uint32(ranks)}
	b.AddRank(&schema.Rank{Time: schema.KTime(time.Duration(r.window) * schema.RankWindow),
		Thread: b.Thread(schema.Thread{Process: b.Process(p)})})
	r.publish(b)
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	even := []float64{.3, .31, .3, .29, .3, .3}
	third := []float64{.3, .31, .1, .29, .3, .3}
	for _, row := range []struct {
		name    string
		windows [][]float64
		want    string // states, and the window that decided
	}{
		{"two windows are not enough", [][]float64{even, third, third, even, third, third}, ""},
		{"three fire, three clear", [][]float64{even, third, third, third, third, even, even, even, third},
			"firing 3, cleared 7"},
		{"two good windows do not clear", [][]float64{third, third, third, even, even, third, even, even}, "firing 2"},
		{"nobody waits any more", append(slices.Repeat([][]float64{third}, 3),
			slices.Repeat([][]float64{{0, 0, 0, 0, 0, 0}}, 12)...), "firing 2, cleared 14"},
		{"windows without waits do not count", [][]float64{third, {0, 0, 0, 0, 0, 0}, third, {0, 0, .01, 0, 0, 0}, third},
			"firing 4"},
		{"most move together", slices.Repeat([][]float64{{.3, .3, .1, .1, .1, .1}}, 9), ""},
		{"all work alike, one waits more", slices.Repeat([][]float64{{.1, .1, .9, .1, .1, .1}}, 9), ""},
		{"more than half", slices.Repeat([][]float64{{.3, .3, .16, .3, .3, .3}}, 9), ""},
		{"the others wait too little", slices.Repeat([][]float64{{.04, .04, 0, .04, .04, .04}}, 9), ""},
		{"the others differ", slices.Repeat([][]float64{{.1, .6, .05, .2, .5, .3}}, 9), ""},
		{"three ranks", slices.Repeat([][]float64{{.3, .3, .1}}, 9), ""},
		{"four ranks", slices.Repeat([][]float64{{.3, .3, .1, .3}}, 9), "firing 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			r := &rows{pair: p}
			var got []string
			for _, shares := range row.windows {
				before := len(p.fired)
				r.add(shares...)
				for _, c := range p.fired[before:] {
					got = append(got, fmt.Sprint(c.state, " ", r.window-1))
					if c.rank != "Rank 2" {
						t.Errorf("%s is named", c.rank)
					}
				}
			}
			if strings.Join(got, ", ") != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if want := map[bool]string{true: Small, false: Running}[len(row.windows[0]) < 4]; row.want == "" &&
				p.jobs.Report()[0].State != want && row.name != "two windows are not enough" {
				t.Errorf("the state is %s, want %s", p.jobs.Report()[0].State, want)
			}
		})
	}
}

// The usual spread counts: noisy ranks do not become suspect in a calm moment.
func TestNoisyRanksNeedMore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := &rows{pair: p}
	random := source(4)
	for range 50 {
		shares := make([]float64, 8)
		for i := range shares {
			shares[i] = .1 + .4*random.Float64()
		}
		r.add(shares...)
	}
	for range 3 {
		r.add(.3, .3, .13, .3, .3, .3, .3, .3)
	}
	if len(p.fired) > 0 {
		t.Errorf("fired %v", p.fired)
	}
	for range 10 {
		r.add(.3, .3, .13, .3, .3, .3, .3, .3)
	}
	if len(p.fired) != 1 {
		t.Errorf("fired %v when the noise had ended", p.fired)
	}
}

// Windows in which a rank is missing are not judged, and the report names it. An ended rank leaves; a job without ranks
// has no state.
func TestMissingAndEndedRanks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := &rows{pair: p}
	third := []float64{.3, .31, .1, .29, .3, .3}
	r.add(third...)
	r.leave = func(rank int) bool { return rank == 4 }
	for range 40 {
		r.add(third...)
	}
	j := p.jobs.Report()[0]
	if len(p.fired) > 0 || j.State != Incomplete || !slices.Equal(j.Missing, []uint32{4}) {
		t.Errorf("fired %v, report %+v", p.fired, j)
	}
	r.leave = nil
	r.add(third...)
	r.add(third...)
	if len(p.fired) != 1 || len(p.jobs.jobs[snapshot.HostID{Cluster: "c", Host: "j"}].open) > 0 {
		t.Fatalf("fired %v", p.fired)
	}
	r.end(2, 6)
	if len(p.fired) != 2 || !strings.HasSuffix(p.alerts[1].Message, "Cleared: the process ended.") {
		t.Errorf("fired %v", p.fired)
	}
	if j := p.jobs.Report()[0]; j.State != Incomplete || len(j.Members) != 5 {
		t.Errorf("the report is %+v", j)
	}
	for rank := range 6 {
		r.end(rank, 6)
	}
	if len(p.jobs.Report()) > 0 || p.jobs.members != 0 {
		t.Errorf("%d members are left", p.jobs.members)
	}
}

// What comes twice, from another run of the numbering, counts once.
func TestSummariesThatComeTwice(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := &rows{pair: p}
	for range 2 {
		for rank, share := range []float64{.3, .3, .1, .3} {
			r.send(rank, 4, share)
			r.send(rank, 4, share)
		}
		r.send(2, 4, .1)
		r.window++
	}
	if len(p.fired) > 0 {
		t.Errorf("fired %v after two windows", p.fired)
	}
}

// Exclusions and the mode off raise nothing, and the report still names the rank.
func TestExcluded(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Severity: alert.Warning, Excluded: func(i *process.Info) bool {
		return i.Job == "j" && i.User == "ada" && i.ID.Host == "gpu-2"
	}}} {
		p := newPair(t)
		p.jobs = New(cfg)
		r := &rows{pair: p}
		for range 5 {
			r.add(.3, .3, .1, .3)
		}
		if j := p.jobs.Report()[0]; len(p.jobs.Alerts()) > 0 || !slices.Equal(j.Slow, []uint32{2}) {
			t.Errorf("%+v", j)
		}
	}
}
