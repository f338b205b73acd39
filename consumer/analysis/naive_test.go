package analysis

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// life is one allocation of a program, by times of its host.
type life struct {
	ptr, bytes  uint64
	gpu         uint32
	tid         uint32
	symbol      string
	from, until schema.KTime // its allocation returned, its free was entered; until 0: never freed
}

// program makes lives of several threads, and applies their calls in the order of their returns, as records come.
// Frees that take long, for example because the GPU is busy, return long after allocations that they precede.
func program(t *testing.T, seed uint64, fold *leak.Tracker, calls int) (lives []*life) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	type call struct {
		returned schema.KTime
		apply    func()
	}
	var order []call
	h := consumertest.Memory(t, "h")
	p := h.Process(7, 1000, "train")
	now, ended := schema.KTime(2000), map[uint64]schema.KTime{} // when the last free of an address returned
	var live []*life
	for range calls {
		now += schema.KTime(r.Uint64N(50))
		tid, gpu := uint32(7+r.IntN(3)), uint32(r.IntN(2))
		took := 1 + r.Uint64N(20)
		if r.IntN(10) == 0 {
			took *= 100
		}
		if len(live) > 0 && r.IntN(5) < 2 {
			i := r.IntN(len(live))
			l := live[i]
			if at := now; at > l.from {
				l.until = at
				ended[l.ptr] = at + schema.KTime(took)
				live = slices.Delete(live, i, i+1)
				order = append(order, call{at + schema.KTime(took), func() { p.Free(tid, l.ptr, at, took) }})
			}
			continue
		}
		l := &life{ptr: 0x1000 * (1 + r.Uint64N(uint64(calls))), bytes: 1 + r.Uint64N(1<<30), gpu: gpu, tid: tid,
			symbol: "cuMemAlloc_v2"}
		if slices.ContainsFunc(live, func(o *life) bool { return o.ptr == l.ptr }) || ended[l.ptr] >= now {
			continue // the driver would not return this address now
		}
		at := now
		l.from = at + schema.KTime(took)
		live, lives = append(live, l), append(lives, l)
		order = append(order, call{l.from, func() {
			p.GPU = &schema.GPU{UUID: fmt.Sprint("GPU-", gpu), Ordinal: gpu}
			p.Alloc(tid, l.ptr, l.bytes, at, took)
		}})
	}
	slices.SortStableFunc(order, func(a, b call) int { return cmp.Compare(a.returned, b.returned) })
	for i, c := range order {
		if c.apply(); i%100 == 99 || i == len(order)-1 {
			if i == len(order)-1 && seed%2 == 0 {
				p.Exit(now + 10_000)
			}
			if err := fold.Apply(h.Batch()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return lives
}

// point is an amount at a time.
type point struct {
	at    int64
	bytes uint64
}

// curve sorts the beginnings and ends of lives, and sums them up.
func curve(lives []*life) (points []point) {
	type step struct {
		at    schema.KTime
		bytes int64
	}
	var steps []step
	for _, l := range lives {
		steps = append(steps, step{l.from, int64(l.bytes)})
		if l.until > 0 {
			steps = append(steps, step{l.until, -int64(l.bytes)})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	sum := int64(0)
	for _, s := range steps {
		sum += s.bytes
		points = append(points, point{int64(s.at), uint64(sum)})
	}
	return points
}

// collapse keeps the last of the points of one time: the order of changes at the same time is not defined.
func collapse(points []point) (list []point) {
	for _, p := range points {
		if n := len(list); n > 0 && list[n-1].at == p.at {
			list[n-1] = p
			continue
		}
		list = append(list, p)
	}
	return list
}

const offset = 1_700_000_000e9

func usageOf(t *testing.T, p *Process, keep func(*Group) bool) (points []point) {
	t.Helper()
	err := p.Usage(keep, func(at time.Time, bytes uint64) bool {
		points = append(points, point{at.UnixNano() - offset, bytes})
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// TestFiguresEqualNaiveSums compares curves, peaks and what is live with sums over all lives, in memory and with
// changes in the file.
func TestFiguresEqualNaiveSums(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		j := NewJournal(t.TempDir())
		defer j.Close()
		if seed%3 > 0 {
			j.limit = 64 << (seed % 3)
		}
		fold := leak.New(leak.Config{OnMovement: j.Receiver()})
		lives := program(t, seed, fold, 1500)
		processes, err := j.Processes()
		if err != nil || len(processes) != 1 {
			t.Fatal(len(processes), err)
		}
		if p := processes[0]; (len(p.runs) > 3) != (j.limit < maxBuffered) {
			t.Errorf("seed %d: %d runs in the file", seed, len(p.runs))
		}
		compare(t, seed, processes[0], lives)
	}
}

func compare(t *testing.T, seed uint64, p *Process, lives []*life) {
	t.Helper()
	if got, want := collapse(usageOf(t, p, nil)), collapse(curve(lives)); !slices.Equal(got, want) {
		t.Fatalf("seed %d: the curve has %d points, want %d", seed, len(got), len(want))
	}
	peaks, err := p.Watermark()
	leaks, err2 := p.Leakage()
	if err != nil || err2 != nil || len(peaks) != 2 || len(leaks) != 2 {
		t.Fatal(len(peaks), len(leaks), err, err2)
	}
	for i := range peaks {
		var of []*life
		for _, l := range lives {
			if fmt.Sprint("GPU-", l.gpu) == p.GPUs[i].UUID {
				of = append(of, l)
			}
		}
		points, most := curve(of), point{}
		for _, at := range points {
			if at.bytes > most.bytes {
				most = at
			}
		}
		if got := peaks[i]; got.Bytes != most.bytes || got.Time.UnixNano()-offset != most.at {
			t.Errorf("seed %d: the peak is %d at %d, want %+v", seed, got.Bytes, got.Time.UnixNano()-offset, most)
		}
		sameLive(t, seed, peaks[i].Live, of, func(l *life) bool {
			return int64(l.from) <= most.at && (l.until == 0 || int64(l.until) > most.at)
		})
		sameLive(t, seed, leaks[i].Live, of, func(l *life) bool { return l.until == 0 })
		last := usageOf(t, p, OnGPU(i))
		end := points[len(points)-1].bytes
		if n := len(last); n == 0 || leaks[i].Bytes != end || last[n-1].bytes != end {
			t.Errorf("seed %d: %d bytes leak, the curve ends elsewhere", seed, leaks[i].Bytes)
		}
	}
}

// sameLive compares allocations with the lives that a condition selects.
func sameLive(t *testing.T, seed uint64, got []Allocation, lives []*life, selects func(*life) bool) {
	t.Helper()
	var want, are []string
	for _, l := range lives {
		if selects(l) {
			want = append(want, fmt.Sprint(l.ptr, l.bytes, l.tid, l.symbol, " ", l.from))
		}
	}
	for i, a := range got {
		are = append(are, fmt.Sprint(a.Ptr, a.Bytes, a.TID, a.Symbol, " ", a.Time.UnixNano()-offset))
		if i > 0 && a.Bytes > got[i-1].Bytes {
			t.Errorf("seed %d: allocation %d is out of order", seed, i)
		}
	}
	slices.Sort(want)
	slices.Sort(are)
	if !slices.Equal(are, want) {
		t.Errorf("seed %d: %d are live, want %d", seed, len(are), len(want))
	}
}
