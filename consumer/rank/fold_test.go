package rank

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// source is one seed of random numbers.
func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// fed is a fold with what it published.
type fed struct {
	*Fold
	tb        testing.TB
	decoder   *schema.Decoder
	summaries []Summary
}

func feed(tb testing.TB) *fed {
	f := &fed{tb: tb, decoder: schema.NewDecoder()}
	f.Fold = New(Config{Publish: func(s Summary) { f.summaries = append(f.summaries, s) }})
	return f
}

func (f *fed) take(messages ...consumertest.Message) {
	for _, m := range messages {
		consumertest.Take(f.tb, f.Fold, consumertest.Step{Message: m.Data})
	}
}

// cell names a figure of a summary: window since the start of the job, rank and classes.
type cell struct {
	window, rank int
	from, to     schema.Activity
}

// figures decodes the summaries.
func (f *fed) figures() map[cell]schema.Rank {
	f.tb.Helper()
	all := map[cell]schema.Rank{}
	for _, s := range f.summaries {
		b := consumertest.Decode(f.tb, s.Message)
		for i := range b.Events {
			e := b.Rank(i)
			rank := b.Processes[b.Threads[e.Thread].Process].Rank - 1
			since := b.Wall(e.Time).Sub(consumertest.Wall)
			c := cell{int((since + length/2) / length), int(rank), e.From, e.To}
			if _, twice := all[c]; twice {
				f.tb.Errorf("%+v is sent twice", c)
			}
			all[c] = e
		}
	}
	return all
}

// truth computes the figures of a job from its calls, one by one, without bins.
func truth(j *consumertest.Job, until time.Duration) map[cell]schema.Rank {
	all := map[cell]schema.Rank{}
	add := func(c cell, count int, d time.Duration, bytes uint64) {
		e := all[c]
		e.Count, e.Duration, e.Bytes = e.Count+uint64(count), e.Duration+uint64(d), e.Bytes+bytes
		all[c] = e
	}
	spread := func(rank int, from, to schema.Activity, begin, end time.Duration, count int) {
		for at := begin; at < end; {
			w := int((at + j.Offset) / length)
			next := min(end, time.Duration(w+1)*length-j.Offset)
			add(cell{w, rank, from, to}, count, next-at, 0)
			at = next
		}
	}
	classes := map[string]schema.Activity{consumertest.JobLaunch: schema.Launching,
		consumertest.JobWait: schema.Syncing,
		consumertest.JobHtoD: schema.CopyingHtoD, consumertest.JobDtoH: schema.CopyingDtoH}
	for rank, calls := range j.Calls {
		for i, c := range calls {
			class, end := classes[c.Symbol], c.At+c.Took
			w := int((end + j.Offset) / length)
			switch class {
			case schema.Syncing:
				add(cell{w, rank, 0, class}, 1, 0, 0)
				spread(rank, 0, class, c.At, end, 0)
			case schema.Launching:
				add(cell{w, rank, 0, class}, 1, 0, 0)
			default:
				add(cell{w, rank, 0, class}, 1, c.Took, c.Bytes)
			}
			if i+1 < len(calls) && calls[i+1].At-end >= time.Millisecond {
				spread(rank, class, classes[calls[i+1].Symbol], end, calls[i+1].At, 1)
			}
		}
	}
	for c := range all {
		if c.window == 0 || time.Duration(c.window+1)*length > until+j.Offset {
			delete(all, c) // the job begins in window 0
		}
	}
	return all
}

// compare compares figures. Each pause may be wrong by two units of time, and the edge of the window by a bin.
func compare(t *testing.T, got, want map[cell]schema.Rank) {
	t.Helper()
	for c, w := range want {
		g := got[c]
		tolerance := uint64(0)
		if c.from != schema.NoActivity {
			tolerance = 2*unit*(w.Count+1) + binDuration
		}
		if max(g.Duration, w.Duration)-min(g.Duration, w.Duration) > tolerance || g.Bytes != w.Bytes ||
			c.from == schema.NoActivity && g.Count != w.Count {
			t.Errorf("window %d, rank %d, %s→%s: %d of %s and %d bytes, want %d of %s and %d bytes", c.window, c.rank,
				c.from, c.to, g.Count, time.Duration(g.Duration), g.Bytes, w.Count, time.Duration(w.Duration), w.Bytes)
		}
	}
	for c := range got {
		if _, expected := want[c]; !expected && c.window > 0 && got[c].Duration > 2*unit {
			t.Errorf("window %d, rank %d, %s→%s: %+v is not expected", c.window, c.rank, c.from, c.to, got[c])
		}
	}
}

// The figures of each window equal those of the calls, whatever the order of the batches of one tick.
func TestSummariesEqualTheCalls(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(*consumertest.Job){
		"gloo": consumertest.Gloo(60, 3, 20*time.Millisecond),
		"nccl": consumertest.NCCL(40, 1, 100*time.Millisecond, 30*time.Millisecond, 0.4),
		"slow": consumertest.Gloo(5, 0, 7*time.Second), // pauses longer than a window
		"fast": fast,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &consumertest.Job{Name: "slurm:1", Ranks: 4, PerHost: 2, Offset: 1234567 * time.Microsecond,
				Step: step, Random: source(7)}
			const until = 42 * time.Second
			messages := j.Messages(t, until)
			f := feed(t)
			f.take(messages...)
			got, want := f.figures(), truth(j, 32*time.Second)
			for c := range got { // ticks of the hosts go further, and an open pause has another end
				if time.Duration(c.window+1)*length > 32*time.Second+j.Offset {
					delete(got, c)
				}
			}
			if name == "slow" {
				join(got)
				join(want) // the ranks begin late
			}
			if compare(t, got, want); len(want) < 40 {
				t.Errorf("only %d figures", len(want))
			}
		})
	}
}

// fast is a step whose calls are microseconds apart, before and after each pause.
func fast(j *consumertest.Job) {
	for rank := range j.Ranks {
		for _, symbol := range []string{consumertest.JobHtoD, consumertest.JobLaunch, consumertest.JobLaunch} {
			j.Call(rank, symbol, map[bool]time.Duration{true: 2 * time.Microsecond}[symbol == consumertest.JobHtoD])
			j.Pause(rank, j.Noise(4*time.Microsecond, 0.2))
		}
		j.Pause(rank, j.Noise(30*time.Millisecond, 0.1))
		for _, symbol := range []string{consumertest.JobLaunch, consumertest.JobDtoH} {
			j.Call(rank, symbol, map[bool]time.Duration{true: 2 * time.Microsecond}[symbol == consumertest.JobDtoH])
			j.Pause(rank, j.Noise(4*time.Microsecond, 0.2))
		}
	}
	end := slices.Max(j.At)
	for rank := range j.Ranks {
		j.At[rank] = end + j.Noise(2*time.Millisecond, 0.1)
	}
}

// join adds pauses without an end to those of the same beginning: at a tick, the next call may be unknown, or it may be
// a wait that did not return yet.
func join(all map[cell]schema.Rank) {
	for c, e := range maps.Clone(all) {
		if c.window < 5 {
			delete(all, c)
		} else if c.from != schema.NoActivity && c.to != schema.NoActivity {
			delete(all, c)
			c.to = schema.NoActivity
			sum := all[c]
			sum.Duration, sum.Count = sum.Duration+e.Duration, sum.Count+e.Count
			all[c] = sum
		}
	}
}

// Hosts send their heartbeats at different moments, and their figures are the same.
func TestMomentOfTheTicksDoesNotMatter(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 4, PerHost: 4, Step: consumertest.Gloo(30, 3, 300*time.Millisecond),
		Random: source(3)}
	const until = 25 * time.Second
	messages := slices.DeleteFunc(j.Messages(t, until), func(m consumertest.Message) bool {
		return consumertest.Decode(t, m.Data).Kind == schema.KindHost
	})
	h := consumertest.Decode(t, messages[0].Data).Header
	var want map[cell]schema.Rank
	for _, phase := range []time.Duration{
		time.Millisecond, 300 * time.Millisecond, time.Second, 1999 * time.Millisecond,
	} {
		f, tick := feed(t), length-j.Offset+phase
		for _, m := range messages {
			for ; tick < m.At; tick += length {
				f.Tick(&h, j.KTime(0, tick))
			}
			f.take(m)
		}
		got := f.figures()
		maps.DeleteFunc(got, func(c cell, _ schema.Rank) bool { return c.window > 9 })
		if want == nil {
			want = got
		}
		if !maps.Equal(got, want) || len(got) < 100 {
			t.Errorf("ticks %s after the end of a window: %d figures differ from %d", phase, len(got), len(want))
		}
	}
}

// The order of the batches between two ticks does not matter.
func TestKindsArriveInAnyOrder(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 4, PerHost: 4, Step: consumertest.Gloo(40, 3, 20*time.Millisecond),
		Random: source(3)}
	messages := j.Messages(t, 25*time.Second)
	first, second := feed(t), feed(t)
	first.take(messages...)
	for len(messages) > 0 {
		n := 1 + slices.IndexFunc(messages, func(m consumertest.Message) bool {
			return consumertest.Decode(t, m.Data).Kind == schema.KindHost
		})
		if n == 0 {
			n = len(messages)
		}
		batch := messages[:max(0, n-1)]
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(batch), func(a, b int) { batch[a], batch[b] = batch[b], batch[a] })
		// The first batch tells when the host began.
		second.take(messages[:n]...)
		messages = messages[n:]
	}
	got, want := second.figures(), first.figures()
	for _, all := range []map[cell]schema.Rank{got, want} {
		for c := range all {
			if c.window == 0 {
				delete(all, c)
			}
		}
	}
	compare(t, got, want)
}

// A fold that was saved and restored at any moment publishes the same bytes as one that was not, under the same
// numbers.
func TestRestoredFoldPublishesTheSameBytes(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 4, PerHost: 2, Step: consumertest.Gloo(20, 3, 20*time.Millisecond),
		Random: source(5)}
	messages := j.Messages(t, 40*time.Second)
	whole := feed(t)
	whole.take(messages...)
	if len(whole.summaries) < 6 {
		t.Fatalf("%d summaries", len(whole.summaries))
	}
	for _, cut := range []int{1, len(messages) / 3, len(messages) / 2, len(messages) - 3} {
		before, after := feed(t), feed(t)
		before.take(messages[:cut]...)
		consumertest.Restore(t, after.Fold, consumertest.Sections(t, before.Fold))
		after.take(messages[cut:]...)
		both := slices.Concat(before.summaries, after.summaries)
		for i, s := range whole.summaries {
			if len(both) != len(whole.summaries) || !bytes.Equal(s.Message, both[i].Message) {
				t.Fatalf("cut at %d: summary %d of %d differs", cut, i, len(both))
			}
		}
	}
	// A fold that begins anew numbers its summaries anew.
	late := feed(t)
	late.take(messages[len(messages)/2:]...)
	b := consumertest.Decode(t, late.summaries[0].Message)
	w := consumertest.Decode(t, whole.summaries[0].Message)
	if b.Seq != 1 || b.Run == w.Run || b.Origin != "slurm:1-1" && b.Origin != "slurm:1-0" || b.Host != "slurm:1" {
		t.Errorf("the summary of a new fold is %+v", b.Header)
	}
}

// Windows that may have lost events are not published, and the numbers have no hole.
func TestLossLeavesWindowsOut(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 4, PerHost: 4, Step: consumertest.Gloo(20, 3, 20*time.Millisecond),
		Random: source(5)}
	f := feed(t)
	for _, m := range j.Messages(t, 60*time.Second) {
		if m.At == 22*time.Second {
			f.Lost("test", "slurm:1-0", "boot-0", 1)
		}
		f.take(m)
	}
	windows := map[int]int{}
	for c := range f.figures() {
		if c.from == schema.NoActivity && c.to == schema.Launching {
			windows[c.window]++
		}
	}
	if got := fmt.Sprint(windows); got != "map[1:4 2:4 3:4 4:4 5:4 6:4 7:4 8:4 11:4 12:4 13:4 14:4 15:4 16:4 17:4 "+
		"18:4 19:4 20:4 21:4 22:4 23:4 24:4 25:4 26:4 27:4]" {
		t.Errorf("ranks by window: %s", got)
	}
	for i, s := range f.summaries {
		if b := consumertest.Decode(t, s.Message); b.Seq != uint64(i+1) {
			t.Errorf("summary %d has number %d", i, b.Seq)
		}
	}
	if f.counters.incomplete != 8 { // two windows of four ranks were open
		t.Errorf("%d windows are incomplete", f.counters.incomplete)
	}
}

// A process that ends leaves its job, and a host without ranks has no state.
func TestEnds(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 2, PerHost: 2, Step: consumertest.Gloo(20, 3, 0), Random: source(5)}
	f := feed(t)
	f.take(j.Messages(t, 25*time.Second)...)
	exit := schema.NewBuilder(schema.KindMemory)
	p := exit.Process(j.Process(1))
	exit.AddMemory(&schema.Memory{Time: j.KTime(0, 25*time.Second), Thread: exit.Thread(schema.Thread{Process: p}),
		Call: exit.Call(schema.CallRef{Symbol: "process_exit", Op: schema.OpExit})})
	h := &schema.Header{Cluster: "test", Host: "slurm:1-0", BootID: "boot-0", Run: 1, Seq: 1, ClockOffset: offset(j, 0)}
	f.take(consumertest.Message{Data: bytes.Clone(exit.Encode(h))})
	for at := 30; at < 1000; at += 10 {
		f.Tick(h, j.KTime(0, time.Duration(at)*time.Second))
	}
	ends := map[int]int{}
	for c := range f.figures() {
		if c.from == schema.NoActivity && c.to == schema.NoActivity {
			ends[c.rank] = c.window
		}
	}
	if ends[1] != 14 || ends[0] < 312 || ends[0] > 316 || f.processes != 0 {
		t.Errorf("the ranks ended in windows %v, and %d processes are left", ends, f.processes)
	}
	if free := len(f.pages); free == 0 || free > maxPages {
		t.Errorf("%d pages are free", free)
	}
	without := feed(t)
	m := consumertest.Memory(t, "gpu-1")
	m.Process(7, 1, "python3").Alloc(7, 0x1000, 70<<20, 100, 5)
	without.take(consumertest.Message{Data: m.Message()})
	if len(without.hosts) != 0 {
		t.Error("a host without ranks has state")
	}
	f.Forget("test", "slurm:1-0")
	if n := len(consumertest.Sections(t, f.Fold)); n != 1 {
		t.Errorf("%d sections after the host was forgotten", n)
	}
}

func offset(j *consumertest.Job, host int) int64 {
	return consumertest.Wall.Add(j.Offset).UnixNano() - int64(j.KTime(host, 0))
}

// Above the limit ranks are counted and ignored.
func TestLimit(t *testing.T) {
	t.Parallel()
	f := feed(t)
	f.processes = maxProcesses
	j := &consumertest.Job{Name: "slurm:1", Ranks: 2, PerHost: 2, Step: consumertest.Gloo(20, 3, 0), Random: source(5)}
	f.take(j.Messages(t, 15*time.Second)...)
	if len(f.summaries) != 0 || f.counters.ignored == 0 || len(f.hosts[snapshot.HostID{Cluster: "test",
		Host: "slurm:1-0"}].procs) != 0 {
		t.Errorf("%d summaries, %+v", len(f.summaries), f.counters)
	}
}

// A heartbeat may be the first to say that events were lost, and a batch that was closed before may come after it.
func TestHeartbeatReportsALoss(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:1", Ranks: 4, PerHost: 4, Step: consumertest.Gloo(20, 3, 20*time.Millisecond),
		Random: source(5)}
	f := feed(t)
	for _, m := range j.Messages(t, 60*time.Second) {
		b := consumertest.Decode(t, m.Data)
		if m.At == 23*time.Second && b.Kind == schema.KindSync {
			h := b.Header
			h.Kind, h.Events, h.First, h.Last, h.Lost[schema.LossBulkRing] = schema.KindHost, 0, 0, 0, 5
			through := schema.End{Kind: schema.KindLaunch, Through: j.KTime(0, 22500*time.Millisecond)}
			check(t, f.Apply(&schema.Batch{Header: h, Ends: []schema.End{through}}))
		}
		if m.At > 23*time.Second && b.Kind != schema.KindSync { // the syncs are late
			b.Lost[schema.LossBulkRing] = 5
		}
		check(t, f.Apply(b))
		if len(b.Ends) > 0 {
			f.Tick(&b.Header, b.Through())
		}
	}
	windows := map[int]int{}
	for c := range f.figures() {
		if c.from == schema.NoActivity && c.to == schema.Launching {
			windows[c.window]++
		}
	}
	if windows[11] > 0 || windows[12] != 4 || windows[27] != 4 || len(windows) < 24 {
		t.Errorf("ranks by window: %v", windows)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
