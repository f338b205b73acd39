package job

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// again is one run of a job whose ranks wait for a share of the time in syncs. Each rank has a host of its own.
type again struct {
	run     int           // of the job: its processes have PIDs of their own
	ranks   int           // of the job
	slow    int           // the rank that waits less; -1: none
	started time.Duration // event time
	hosts   string        // prefix of their names
	boot    string        // ends the ids of their boots
	wrong   int           // the rank whose host has a wrong clock
	clock   time.Duration // by how much
}

// window sends a window of every rank.
func (a *again) window(p *pair, n int) {
	for rank := range a.ranks {
		a.send(p, rank, n, false)
	}
}

func (a *again) send(p *pair, of, n int, ended bool) {
	b := schema.NewBuilder(schema.KindRank)
	b.Origin = fmt.Sprint(a.hosts, of)
	start := schema.KTime(a.started)
	th := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: uint32(100*a.run + of), Start: start,
		Comm: "train", Job: "j", Rank: uint32(of) + 1, Ranks: uint32(a.ranks)})})
	at := start + schema.KTime(n+1)*schema.KTime(schema.RankWindow)
	wait := schema.RankWindow / 3
	if of == a.slow {
		wait /= 4
	}
	if !ended {
		b.AddRank(&schema.Rank{Time: at, Thread: th, To: schema.Launching, Count: 10})
		b.AddRank(&schema.Rank{Time: at, Thread: th, To: schema.Syncing, Count: 10, Duration: uint64(wait)})
	} else {
		b.AddRank(&schema.Rank{Time: at, Thread: th})
	}
	h := &schema.Header{Cluster: "c", Host: "j", BootID: b.Origin + a.boot, Run: 1, Seq: uint64(n + 1),
		ClockOffset: 1_800_000_000_000_000_000}
	if of == a.wrong {
		h.ClockOffset += int64(a.clock)
	}
	p.publish(rank.Summary{Message: b.Encode(h)})
}

// restored saves the state of the fold and goes on with another one.
func (p *pair) restored() {
	p.tb.Helper()
	to := New(p.jobs.cfg)
	if err := p.jobs.Snapshot(func(s snapshot.Section) error {
		s.Data = bytes.Clone(s.Data)
		return to.Restore(s)
	}); err != nil {
		p.tb.Fatal(err)
	}
	p.jobs = to
}

// A job of the same name that starts again is judged from its first windows on, whatever ends of its earlier processes
// were seen, and the alert about its earlier slow rank clears.
func TestJobStartsAgain(t *testing.T) {
	t.Parallel()
	const long, pause = 75, 3 * time.Minute
	for _, row := range []struct {
		name   string
		before again
		ends   func(rank int) bool // which ends are seen
		after  again
		pause  time.Duration
	}{
		{"no end was seen", again{slow: 3}, nil, again{slow: 5}, pause},
		{"one end was not seen", again{slow: 3}, func(rank int) bool { return rank != 3 }, again{slow: 5}, pause},
		{"and that rank is gone", again{slow: 7}, func(rank int) bool { return rank != 7 },
			again{slow: 5, ranks: 7}, pause},
		{"after 30 s", again{slow: -1}, nil, again{slow: 5}, 30 * time.Second},
		{"at once", again{slow: 3}, nil, again{slow: 5}, 3 * time.Second},
		{"at once, with fewer ranks", again{slow: 7}, nil, again{slow: 5, ranks: 7}, 3 * time.Second},
		{"on other hosts", again{slow: 3}, nil, again{slow: 5, hosts: "new-"}, pause},
		{"one has a wrong clock", again{slow: 3, wrong: 2, clock: 9 * time.Minute}, nil,
			again{slow: 5, wrong: 2, clock: 9 * time.Minute}, pause},
		{"the first has a wrong clock", again{slow: 3, clock: -9 * time.Minute}, nil,
			again{slow: 0, clock: -9 * time.Minute}, pause},
		{"on other hosts, one with a wrong clock", again{slow: 3}, nil,
			again{slow: 5, hosts: "new-", wrong: 4, clock: 7 * time.Minute}, pause},
	} {
		for _, save := range []bool{false, true} {
			t.Run(fmt.Sprint(row.name, " saved=", save), func(t *testing.T) {
				t.Parallel()
				p, before, after := newPair(t), row.before, row.after
				before.run, before.ranks, before.started = 1, 8, time.Minute
				if before.hosts = "gpu-"; after.hosts == "" {
					after.hosts = before.hosts
				}
				if after.ranks == 0 {
					after.ranks = 8
				}
				after.run, after.started = 2, time.Minute+(long+1)*schema.RankWindow+row.pause
				for n := range long {
					before.window(p, n)
				}
				for rank := range before.ranks {
					if row.ends != nil && row.ends(rank) {
						before.send(p, rank, long, true)
					}
				}
				if save {
					p.restored()
				}
				for n := range 4 {
					after.window(p, n)
				}
				expectAgain(t, p, &before, &after)
			})
		}
	}
}

func expectAgain(t *testing.T, p *pair, before, after *again) {
	t.Helper()
	var got, want []string
	for _, c := range p.fired {
		got = append(got, c.state+" "+c.rank)
	}
	if before.slow >= 0 {
		want = append(want, fmt.Sprint("firing Rank ", before.slow), fmt.Sprint("cleared Rank ", before.slow))
	}
	want = append(want, fmt.Sprint("firing Rank ", after.slow))
	if !slices.Equal(got, want) {
		t.Errorf("alerts: %q, want %q", got, want)
	}
	j := p.jobs.Report()[0]
	if j.State != Straggler || !slices.Equal(j.Slow, []uint32{uint32(after.slow)}) || len(j.Members) != after.ranks ||
		p.jobs.members != after.ranks {
		t.Errorf("the report is %+v", j)
	}
	for _, m := range j.Members {
		if m.ID.PID/100 != uint32(after.run) {
			t.Errorf("rank %d is still process %d", m.Rank, m.ID.PID)
		}
	}
}

// Windows of the earlier processes that come late, from a slow shard, change nothing.
func TestLateWindowsOfTheEarlierProcesses(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	before := again{run: 1, ranks: 8, slow: 3, started: time.Minute, hosts: "gpu-"}
	after := again{run: 2, ranks: 8, slow: 5, started: 6 * time.Minute, hosts: "gpu-"}
	for n := range 75 {
		before.window(p, n)
	}
	for n := range 4 {
		after.window(p, n)
		for rank := range 2 {
			before.send(p, rank, 75+n, n == 3)
		}
	}
	expectAgain(t, p, &before, &after)
	if len(p.alerts) < 2 {
		return
	}
	if last := p.alerts[1]; last.State != alert.Cleared ||
		!strings.HasSuffix(last.Message, "Cleared: the job started again.") {
		t.Errorf("the second alert is %+v", last)
	}
}

// A host that starts again and again, under a job that goes on, adds no clock for each of its boots.
func TestClocksOfEarlierBootsAreDropped(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for boots := range 100 {
		a := again{run: boots, ranks: 4, slow: -1, started: time.Minute, hosts: "gpu-", boot: fmt.Sprint(boots)}
		for n := range 4 {
			a.window(p, 4*boots+n)
		}
	}
	for _, j := range p.jobs.jobs {
		if len(j.shifts) > 8 {
			t.Errorf("%d clocks of 4 ranks", len(j.shifts))
		}
	}
}
