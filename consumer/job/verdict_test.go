package job

import (
	"fmt"
	"math"
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

// compareFigures compares an alert about rank 2 with its window, the last one.
func compareFigures(t *testing.T, a *alert.Alert, windows [][]float64) {
	t.Helper()
	var others, score, usual float64
	for _, shares := range windows {
		rest := slices.Sorted(slices.Values(shares))[1:] // without the one that waits least
		if others = (rest[(len(rest)-1)/2] + rest[len(rest)/2]) / 2; others < .05 {
			continue
		}
		spread := 0.0
		for _, share := range rest {
			spread += 1.2533 * math.Abs(share-others) / float64(len(rest))
		}
		if usual == 0 {
			usual = spread
		}
		score = (slices.Min(shares) - others) / max(.02, usual, spread)
		usual = max(spread, (usual+spread)/2)
	}
	ranks, own := len(windows[0]), windows[len(windows)-1][2]
	says := fmt.Sprintf("(pid 3) on gpu-2, works while the other %d ranks wait: they are in calls that wait for the "+
		"GPU %.0f %% of the time, this rank %.0f %%.", ranks-1, 100*others, 100*own)
	near := func(got, want float64) bool { return math.Abs(got-want) <= .0001 } // four digits
	if !near(a.Value, own) || !near(a.Baseline, others) || !near(a.Score, score) || a.PID != 3 || a.Repeats != 0 ||
		a.Evidence.Seq != uint64((len(windows)-1)*ranks+3) || !strings.Contains(a.Message, says) {
		t.Errorf("got %+v, want %g of %g, score %g: %s", a, own, others, score, says)
	}
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
		{"two windows of four are not enough", [][]float64{third, third, even, even, third, third, even}, ""},
		{"three windows of four", [][]float64{even, third, even, third, third}, "firing 4"},
		{"three windows of five are not enough", [][]float64{even, third, even, third, even, third, even}, ""},
		{"three fire, three clear", [][]float64{even, third, third, third, third, even, even, even, third},
			"firing 3, cleared 7"},
		{"two good windows do not clear", [][]float64{third, third, third, even, even, third, even, even}, "firing 2"},
		{"nobody waits any more", append(slices.Repeat([][]float64{third}, 3),
			slices.Repeat([][]float64{{0, 0, 0, 0, 0, 0}}, 30)...), "firing 2, cleared 32"},
		{"windows without waits do not count",
			[][]float64{third, {0, 0, 0, 0, 0, 0}, third, {0, 0, .01, 0, 0, 0}, third}, "firing 4"},
		{"most move together", slices.Repeat([][]float64{{.3, .3, .1, .1, .1, .1}}, 9), ""},
		{"all work alike, one waits more", slices.Repeat([][]float64{{.1, .1, .9, .1, .1, .1}}, 9), ""},
		{"more than half", slices.Repeat([][]float64{{.3, .3, .16, .3, .3, .3}}, 9), ""},
		{"the others wait too little", slices.Repeat([][]float64{{.04, .04, 0, .04, .04, .04}}, 9), ""},
		{"the others differ", slices.Repeat([][]float64{{.1, .6, .05, .2, .5, .3}}, 9), ""},
		{"the others differ a little", [][]float64{{.5, .3, .4, .26, .36, .44}, {.4, .34, .02, .3, .26, .36},
			{.4, .34, .02, .31, .26, .36}, {.41, .34, .02, .3, .26, .37}}, "firing 3"},
		{"three ranks", slices.Repeat([][]float64{{.3, .3, .1}}, 9), ""},
		{"four ranks", slices.Repeat([][]float64{{.3, .3, .1, .3}}, 9), "firing 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			r := &rows{pair: p}
			var got []string
			for w, shares := range row.windows {
				before := len(p.fired)
				r.add(shares...)
				if len(p.fired) > before && p.fired[before].state == alert.Firing {
					compareFigures(t, &p.alerts[before], row.windows[:w+1])
				}
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
				p.jobs.Report()[0].State != want {
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
	young := newPair(t)
	few := &rows{pair: young, leave: func(rank int) bool { return rank == 4 || rank == 1 }}
	few.add(third...)
	if j := young.jobs.Report()[0]; j.State != Incomplete || !slices.Equal(j.Missing, []uint32{1, 4}) {
		t.Errorf("before the first window closes: %+v", j)
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

// An alert that fires when the rule is switched off, or its process is excluded, clears with the next window.
func TestAlertThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	for why, off := range map[string]func(*Config){
		"the rule is off":         func(c *Config) { c.Severity = "" },
		"the process is excluded": func(c *Config) { c.Excluded = func(i *process.Info) bool { return i.ID.PID == 3 } },
	} {
		p := newPair(t)
		r := &rows{pair: p}
		for n := range 6 {
			if n == 5 {
				off(&p.jobs.cfg)
				p.restored()
			}
			r.add(.3, .3, .1, .3)
		}
		if len(p.fired) != 2 || !strings.HasSuffix(p.alerts[1].Message, "Cleared: "+why+".") {
			t.Errorf("%s: fired %v", why, p.fired)
		}
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
