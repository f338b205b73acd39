package tensor_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

const (
	mib    = uint64(1) << 20
	gib    = uint64(1) << 30
	minute = schema.KTime(time.Minute)
)

// program is one PyTorch program in event time, whose allocator has a segment for everything. It keeps all changes of
// its tensors as truth.
type program struct {
	t        *testing.T
	f        *tensor.Fold
	h        *host
	rng      *rand.Rand
	now      schema.KTime
	reserved uint64
	used     uint64
	next     uint64
	live     map[uint64]uint64
	order    []uint64 // addresses, the oldest first
	changes  []change
	open     int // first window that is not closed
	base     uint64
	load     uint64
}

// change is an allocation, or a free with negative bytes.
type change struct {
	at, born schema.KTime
	bytes    int64
	ptr      uint64
	cached   uint64 // by the allocator, after it
}

func newProgram(t *testing.T) *program {
	return &program{t: t, f: tensor.New(tensor.Config{}), h: newHost(), rng: rand.New(rand.NewPCG(1, 7)),
		now: 1000*minute + 17e9, reserved: 16 * gib, next: 1 << 40, live: map[uint64]uint64{}}
}

func (p *program) alloc(bytes uint64) uint64 {
	p.now += schema.KTime(time.Millisecond)
	p.next += 1 << 32
	p.used += bytes
	p.live[p.next] = bytes
	p.order = append(p.order, p.next)
	p.changes = append(p.changes, change{p.now, p.now, int64(bytes), p.next, p.reserved - p.used})
	p.report(p.next, int64(bytes))
	return p.next
}

func (p *program) free(ptr uint64) {
	p.now += schema.KTime(time.Millisecond)
	bytes := p.live[ptr]
	delete(p.live, ptr)
	p.order = slices.DeleteFunc(p.order, func(o uint64) bool { return o == ptr })
	p.used -= bytes
	p.changes = append(p.changes, change{at: p.now, bytes: -int64(bytes), ptr: ptr,
		cached: p.reserved - p.used})
	p.report(ptr, -int64(bytes))
}

func (p *program) report(ptr uint64, bytes int64) {
	p.h.add(report{pid: 10, tid: 1, at: p.now, ptr: ptr, bytes: bytes, allocated: p.used, reserved: p.reserved})
}

// sleep sends the events, and closes windows when their time has passed.
func (p *program) sleep(d time.Duration) {
	p.now += schema.KTime(d)
	if p.h.b.Events() > 0 {
		p.h.send(p.t, p.f)
	}
	if open := int(p.now / minute); open > p.open {
		p.open = open
		p.f.Tick(&p.h.Header, p.now)
	}
}

// minutes runs step every half minute, for so many minutes, and judge after each.
func (p *program) minutes(n int, step, judge func()) {
	for range 2 * n {
		step()
		p.sleep(30 * time.Second)
		judge()
	}
}

func (p *program) verdict() tensor.Verdict { return only(p.t, p.f).GPUs[0].Verdict }

// minima replays all changes: the lowest bytes of each of the last 30 windows, but not of the one in which the program
// began.
func (p *program) minima() (windows []int, lowest []float64) {
	first := int(p.changes[0].at/minute) + 1
	for w := max(first, p.open-30); w < p.open; w++ {
		level, low := int64(0), int64(math.MaxInt64)
		for _, c := range p.changes {
			at := int(c.at / minute)
			if at == w {
				low = min(low, level)
			}
			if at <= w {
				level += c.bytes
			}
			if at == w {
				low = min(low, level)
			}
		}
		windows, lowest = append(windows, w), append(lowest, float64(min(low, level)))
	}
	return windows, lowest
}

// median of the slopes of all pairs in bytes per hour, computed by trying every pair.
func theilSen(windows []int, levels []float64) float64 {
	var all []float64
	for i := range windows {
		for j := range windows {
			if windows[j] > windows[i] {
				all = append(all, 60*(levels[j]-levels[i])/float64(windows[j]-windows[i]))
			}
		}
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// TestTensorsThatAreKeptAreSuspect, while the driver sees no growth: the segments are there. The slope is that of all
// pairs of minima.
func TestTensorsThatAreKeptAreSuspect(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	weights := p.alloc(2 * gib)
	var states []string
	suspectAt := 0
	p.minutes(50, func() {
		activation := p.alloc((1 + p.rng.Uint64N(900)) * mib)
		p.alloc(6 * mib)
		p.free(activation)
	}, func() {
		v := p.verdict()
		if s := v.State.String(); len(states) == 0 || states[len(states)-1] != s {
			states = append(states, s)
		}
		if v.State == trend.Suspect && suspectAt == 0 {
			suspectAt = len(p.changes) / 6
		}
		if v.State == trend.Warming {
			return
		}
		windows, lowest := p.minima()
		if want := theilSen(windows, lowest); math.Abs(float64(v.PerHour)-want) > want/50 {
			t.Fatalf("minute %d: %d bytes per hour, want %.0f", len(p.changes)/6, v.PerHour, want)
		}
	})
	if want := []string{"warming", "growing", "suspect"}; !reflect.DeepEqual(states, want) {
		t.Errorf("states %q, want %q", states, want)
	}
	v := p.verdict()
	if suspectAt < 30 || suspectAt > 36 || v.Cache.Grows() || v.SuspectBytes == 0 || v.SuspectBytes > 100*6*mib ||
		v.Evidence.Kind != "tensor" || v.Evidence.SeqFrom == 0 || v.Evidence.SeqFrom > 10 ||
		!strings.HasPrefix(v.Why, "PyTorch's tensors have grown by ") ||
		!strings.Contains(v.Why, " per hour, by the median of the last windows); ") {
		t.Errorf("suspect after %d minutes, %+v", suspectAt, v)
	}
	// all blocks of 6 MiB are of one thread and size class; the youngest quarter does not count
	if g := v.Groups; len(g) != 1 || g[0].TID != 1 || g[0].SizeClass != 4*mib || g[0].Bytes != g[0].Allocations*6*mib ||
		g[0].Allocations < 60 || g[0].Allocations > 90 || v.At.Sub(g[0].Oldest) < 45*time.Minute {
		t.Errorf("groups %+v", g)
	}
	p.free(weights)
	apply(t, p.f, p.h.end(t, "exit", 10, p.now))
	p.sleep(2 * time.Minute)
	if got := p.verdict(); got.State != trend.Suspect || !reflect.DeepEqual(got.Groups, v.Groups) {
		t.Errorf("an ended process is %+v, want its last verdict", got)
	}
}

// TestCacheIsToldApartFromTensors: memory that the allocator reserves and gives to no tensor.
func TestCacheIsToldApartFromTensors(t *testing.T) {
	t.Parallel()
	work := func(p *program) { p.free(p.alloc((1 + p.rng.Uint64N(64)) * mib)) }
	for _, row := range []struct {
		name          string
		minutes       int // for which the cache grows
		tensors, want trend.State
		why           string
	}{
		{"a cache that new tensors do not use", 50, trend.Steady, trend.Suspect, "PyTorch's cache grows, its tensors " +
			"do not: 1.121 GiB per hour stay reserved for no tensor. Freed blocks do not fit new tensors"},
		{"a plateau", 14, trend.Steady, trend.Steady, "no lasting growth of PyTorch's tensors in 30 windows of 1m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newProgram(t)
			p.alloc(2 * gib)
			grown := 0
			p.minutes(50, func() {
				if grown < row.minutes*2 {
					grown++
					p.reserved += 10 * mib
				}
				work(p)
			}, func() {})
			if v := p.verdict(); v.State != row.tensors || v.Cache != row.want || !strings.HasPrefix(v.Why, row.why) {
				t.Errorf("tensors %s, cache %s: %s", v.State, v.Cache, v.Why)
			}
		})
	}
}

// TestSurvivorsShowWhatFluctuationHides: the bytes in use vary by 1 GiB, and some MiB a minute are kept, or only seem
// to be.
func TestSurvivorsShowWhatFluctuationHides(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		keep  func(p *program, kept *[]uint64) // every half minute
		grows bool
	}{
		{"all are kept", func(p *program, _ *[]uint64) { p.alloc(6 * mib) }, true},
		{"nothing is kept", func(*program, *[]uint64) {}, false},
		{"a ring of the last 40 minutes", func(p *program, kept *[]uint64) {
			if *kept = append(*kept, p.alloc(10*mib)); len(*kept) > 80 {
				p.free((*kept)[0])
				*kept = (*kept)[1:]
			}
		}, false},
		{"a cache whose entries are replaced at random", func(p *program, kept *[]uint64) {
			if *kept = append(*kept, p.alloc(10*mib)); len(*kept) > 40 {
				i := p.rng.IntN(len(*kept))
				p.free((*kept)[i])
				*kept = slices.Delete(*kept, i, i+1)
			}
		}, false},
		{"such a cache, under a load that grows", func(p *program, kept *[]uint64) {
			if *kept = append(*kept, p.alloc(10*mib)); len(*kept) > 40 {
				i := p.rng.IntN(len(*kept))
				p.free((*kept)[i])
				*kept = slices.Delete(*kept, i, i+1)
			}
			p.load += mib * 4
			p.free(p.base)
			p.base = p.alloc(gib + p.load)
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t)
			p.base = p.alloc(2 * gib)
			var kept, batch []uint64
			for range 100 {
				row.keep(p, &kept) // the ring and the cache are full when the program is first judged
			}
			grew, hidden := 0, false
			p.minutes(60, func() {
				row.keep(p, &kept)
				if p.rng.IntN(3) == 0 {
					old := batch
					batch = nil
					for range 4 + p.rng.IntN(16) {
						batch = append(batch, p.alloc(64*mib))
					}
					for _, ptr := range old {
						p.free(ptr)
					}
				}
			}, func() {
				if p.verdict().State == trend.Suspect && !row.grows {
					t.Fatal("suspect")
				}
				if v := p.verdict(); v.State.Grows() {
					grew++
					hidden = hidden || strings.HasPrefix(v.Why, "each window of 1m0s leaves tensors of PyTorch behind")
				}
			})
			// By chance the fluctuation rises for a while.
			if row.grows && !hidden || row.grows != (grew > 20) || !row.grows && grew > 8 {
				t.Errorf("it grows in %d of 120 half minutes", grew)
			}
		})
	}
}

// TestRestoredVerdictsGoOn: a fold that is restored at any minute goes on as if nothing had happened.
func TestRestoredVerdictsGoOn(t *testing.T) {
	t.Parallel()
	whole, cut := newProgram(t), newProgram(t)
	for minute := range 45 {
		for _, p := range []*program{whole, cut} {
			p.minutes(1, func() { p.alloc(8 * mib); p.free(p.alloc(1 + p.rng.Uint64N(gib))) }, func() {})
		}
		saved := consumertest.Sections(t, cut.f)
		cut.f = consumertest.Restore(t, tensor.New(tensor.Config{}), saved)
		if again := consumertest.Sections(t, cut.f); !reflect.DeepEqual(again, saved) {
			t.Fatalf("minute %d: the state is saved differently after it was restored", minute)
		}
		if got, want := cut.f.Report(3), whole.f.Report(3); !reflect.DeepEqual(got, want) {
			t.Fatalf("minute %d: got %+v, want %+v", minute, got, want)
		}
	}
	if s := cut.verdict().State; s != trend.Suspect {
		t.Errorf("the program is %s", s)
	}
	short := consumertest.Restore(t, tensor.New(tensor.Config{Window: 10 * time.Second}),
		consumertest.Sections(t, cut.f))
	if v := only(t, short).GPUs[0].Verdict; v.State != trend.Warming {
		t.Errorf("with windows of another length it is %s", v.State)
	}
}

// TestLostReportsWeakenAVerdict: windows with lost events do not count, and a late process is at most growing while it
// frees blocks that were never seen.
func TestLostReportsWeakenAVerdict(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		odd  func(p *program)
		want trend.State
	}{
		{"nothing is lost", func(*program) {}, trend.Suspect},
		{"the ring was full again and again", func(p *program) { p.h.Lost[schema.LossTensorRing]++ }, trend.Unknown},
		{"batches were lost again and again", func(p *program) { p.f.Lost("c", "h", "boot-1", 1) }, trend.Unknown},
		{"a launch ring was full", func(p *program) { p.h.Lost[schema.LossBulkRing]++ }, trend.Suspect},
		{"blocks from before are freed", func(p *program) { p.report(1<<30, -512) }, trend.Growing},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newProgram(t)
			p.used = gib // before gputap attached
			p.minutes(50, func() { p.alloc(8 * mib); row.odd(p) }, func() {})
			if v := p.verdict(); v.State != row.want {
				t.Errorf("it is %s, want %s: %s", v.State, row.want, v.Why)
			}
		})
	}
}
