package leak

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// naive judges a program from its events alone: it replays all of them for every window and tries every pair. It
// knows the verdict before. It shares no code with package trend.
type naive struct {
	state            string
	onset, last      int // windows
	fading           bool
	growth, perHour  uint64
	suspectBytes     uint64
	windows, ignored int
	groups           []naiveGroup
	excluded         map[int]bool
	minima           map[int]uint64 // of closed windows
}

func newNaive() *naive { return &naive{excluded: map[int]bool{}, minima: map[int]uint64{}} }

type naiveGroup struct {
	tid                uint32
	size               uint64
	bytes, allocations uint64
	oldest             schema.KTime
	windows            map[int]bool // modulo 64
}

// judge looks at the events on a GPU before a moment, when all windows before open are closed.
func (n *naive) judge(events []event, gpu string, open int, width schema.KTime, enough uint64) {
	var mine []event
	for _, e := range events {
		if e.gpu == gpu {
			mine = append(mine, e)
		}
	}
	before := *n
	*n = naive{excluded: n.excluded, minima: n.minima, state: "warming"}
	if len(mine) == 0 {
		return
	}
	from := max(int(mine[0].at/width)+1, open-30)
	n.windows = max(0, open-from)
	if open-from < 17 {
		return
	}
	var windows []int
	var levels []uint64
	for w := from; w < open; w++ {
		if !n.excluded[w] {
			if _, known := n.minima[w]; !known {
				n.minima[w] = lowest(mine, schema.KTime(w)*width, width)
			}
			windows, levels = append(windows, w), append(levels, n.minima[w])
		}
	}
	n.windows, n.ignored, n.state = len(windows), open-from-len(windows), "unknown"
	if len(windows) < 17 {
		return
	}
	n.state = "steady"
	levels, cap := flatten(windows, levels)
	begin := begun(windows, levels)
	end := len(windows) - 1
	grown := windows[end] - windows[begin] + 1
	first := 0
	if grown >= 17 {
		first = begin
	}
	slope, rising := slopes(windows[first:], levels[first:])
	n.perHour = uint64(math.Round(slope * 3600e9 / float64(width)))
	growing := grown >= 17 && rising >= 0.8 && keepsGoing(windows, levels, begin, grown/4, 0.5) ||
		before.grows() && grown >= 17 && rising >= 0.7 && keepsGoing(windows, levels, begin, grown/4, 0.125)
	if !growing || !survive(mine, windows, levels, begin, grown, cap, width) {
		if before.grows() && !before.fading { // one such window changes nothing
			before.windows, before.ignored, before.fading = n.windows, n.ignored, true
			*n = before
		}
		return
	}
	n.state, n.onset, n.last = "growing", windows[begin], windows[end]
	more := grown - 1
	if before.grows() {
		n.onset, n.growth, more = before.onset, before.growth, n.last-before.last
	}
	n.growth += uint64(math.Round(slope * float64(more)))
	certain := before.state == "suspect" || rising >= 0.8 && keepsGoing(windows, levels, begin, grown/4, 0.5)
	if n.growth >= enough && n.last-n.onset+1 >= 30 && certain {
		n.state = "suspect"
	}
	n.group(mine, schema.KTime(n.last-grown/4+1)*width, width)
}

func (n *naive) grows() bool { return n.state == "growing" || n.state == "suspect" }

// lowest replays all events up to the end of a window.
func lowest(events []event, start, width schema.KTime) uint64 {
	level, low, inside := uint64(0), uint64(math.MaxUint64), false
	for _, e := range events {
		if e.at >= start+width {
			break
		}
		if e.at >= start && !inside {
			low, inside = level, true
		}
		if e.bytes > 0 {
			level += e.bytes
		} else {
			level -= e.block.bytes
		}
		if inside {
			low = min(low, level)
		}
	}
	return min(low, level)
}

// flatten returns for each window the rise above the first of the level to which memory never returned, and the
// largest rise that one window may add.
func flatten(windows []int, levels []uint64) (rises []uint64, cap uint64) {
	floor := func(k int) uint64 { return slices.Min(levels[k:]) }
	var steps []int
	for k := 1; k < len(windows); k++ {
		if windows[k]-windows[k-1] == 1 {
			steps = append(steps, int(floor(k)-floor(k-1)))
		}
	}
	sort.Sort(sort.Reverse(sort.IntSlice(steps)))
	if len(steps) >= 4 {
		cap = uint64(steps[3])
	}
	rises = make([]uint64, len(windows))
	for k := 1; k < len(windows); k++ {
		rises[k] = rises[k-1]
		if windows[k]-windows[k-1] == 1 {
			rises[k] += min(cap, floor(k)-floor(k-1))
		}
	}
	return rises, cap
}

// begun returns where growth began.
func begun(windows []int, rises []uint64) (at int) {
	end := len(windows) - 1
	for k := range windows {
		if rises[k] == 0 {
			at = k
		}
		if k < 7 || k > end-7 {
			continue
		}
		before := float64(rises[k]-rises[k-7]) / float64(windows[k]-windows[k-7])
		after := float64(rises[end]-rises[k]) / float64(windows[end]-windows[k])
		if before < after/4 {
			at = k
		}
	}
	return at
}

// slopes returns the median slope of all pairs and the share of pairs that rise.
func slopes(windows []int, rises []uint64) (median, rising float64) {
	var all []float64
	for i := range windows {
		for j := range windows {
			if i < j {
				all = append(all, float64(rises[j]-rises[i])/float64(windows[j]-windows[i]))
			}
		}
	}
	sort.Float64s(all)
	up := 0
	for _, s := range all {
		if s > 0 {
			up++
		}
	}
	median = all[len(all)/2]
	if len(all)%2 == 0 {
		median = (all[len(all)/2-1] + all[len(all)/2]) / 2
	}
	return median, float64(up) / float64(len(all))
}

// keepsGoing reports whether the last quarter rises at least by a factor of the rate before it.
func keepsGoing(windows []int, rises []uint64, begin, quarter int, factor float64) bool {
	end := len(windows) - 1
	at := begin
	for k := begin; k <= end; k++ {
		if windows[k] <= windows[end]-quarter {
			at = k
		}
	}
	now, before := float64(rises[end]-rises[at]), float64(rises[at]-rises[begin])
	return (now > 0 || factor == 0.5) &&
		now*float64(windows[at]-windows[begin]) >= factor*before*float64(windows[end]-windows[at])
}

// survive reports whether the live memory from the first half of the windows explains half of the growth there.
func survive(events []event, windows []int, rises []uint64, begin, grown int, cap uint64, width schema.KTime) bool {
	alive := map[uint64]event{}
	for _, e := range events {
		if alive[e.ptr] = e; e.bytes == 0 {
			delete(alive, e.ptr)
		}
	}
	born := map[int]uint64{}
	for _, e := range alive {
		born[int(e.at/width)] += e.bytes
	}
	sum, last := uint64(0), begin
	for k := begin; windows[k]+grown/2 <= windows[len(windows)-1]; k++ {
		sum += min(cap, born[windows[k]])
		last = k
	}
	return float64(sum) >= float64(rises[last]-rises[begin])/2
}

// group lists the live allocations since growth began.
func (n *naive) group(events []event, until, width schema.KTime) {
	alive := map[uint64]event{}
	for _, e := range events {
		if alive[e.ptr] = e; e.bytes == 0 {
			delete(alive, e.ptr)
		}
	}
	type key struct {
		tid  uint32
		bits int
	}
	groups, total := map[key]*naiveGroup{}, uint64(0)
	for _, e := range alive {
		if e.at < schema.KTime(n.onset)*width {
			continue
		}
		k := key{e.tid, bits.Len64(e.bytes)}
		if groups[k] == nil {
			groups[k] = &naiveGroup{tid: e.tid, size: 1 << (k.bits - 1), oldest: math.MaxUint64,
				windows: map[int]bool{}}
		}
		g := groups[k]
		g.windows[int(e.at/width)%64] = true
		if e.at < until {
			g.bytes += e.bytes
			g.allocations++
			g.oldest = min(g.oldest, e.at)
			total += e.bytes
		}
	}
	steady := slices.ContainsFunc(slices.Collect(maps.Values(groups)),
		func(g *naiveGroup) bool { return len(g.windows) >= 4 })
	for _, g := range groups {
		if len(g.windows) >= 4 || !steady {
			n.groups = append(n.groups, *g)
		}
	}
	slices.SortFunc(n.groups, func(a, b naiveGroup) int {
		often := func(g naiveGroup) int { return min(4, len(g.windows)) }
		return cmp.Or(often(b)-often(a), cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.allocations, a.allocations),
			cmp.Compare(a.tid, b.tid), cmp.Compare(a.size, b.size))
	})
	n.groups = n.groups[:min(10, len(n.groups))]
	n.groups = slices.DeleteFunc(n.groups, func(g naiveGroup) bool { return g.allocations == 0 })
	if n.state == "suspect" {
		n.suspectBytes = min(total, n.growth)
	}
}

// compare compares a verdict with the naive one.
func (n *naive) compare(t *testing.T, s *simulation, v Verdict) {
	t.Helper()
	want := Verdict{SuspectBytes: n.suspectBytes, SlopeBytesPerHour: n.perHour, GrowthBytes: n.growth}
	if n.grows() {
		want.Since = wall(schema.KTime(n.onset) * schema.KTime(s.tracker.cfg.Window))
	}
	got := Verdict{SuspectBytes: v.SuspectBytes, SlopeBytesPerHour: v.SlopeBytesPerHour, GrowthBytes: v.GrowthBytes,
		Since: v.Since}
	if v.State.String() != n.state || got.SuspectBytes != want.SuspectBytes || !got.Since.Equal(want.Since) ||
		got.SlopeBytesPerHour-want.SlopeBytesPerHour+1 > 2 || // both are rounded
		got.GrowthBytes != want.GrowthBytes {
		t.Fatalf("%s\n%s %+v, want %s %+v", s, v.State, got, n.state, want)
	}
	n.compareFull(t, s, v)
	same := len(v.Groups) == len(n.groups)
	for i := range v.Groups {
		g := &v.Groups[i]
		same = same && g.TID == n.groups[i].tid && g.SizeClass == n.groups[i].size && g.Bytes == n.groups[i].bytes &&
			g.Allocations == n.groups[i].allocations && g.Oldest.Equal(wall(n.groups[i].oldest))
	}
	if !same {
		t.Fatalf("%s\ngroups %+v, want %+v", s, v.Groups, n.groups)
	}
}

// compareFull compares the time until a GPU of 80 GiB is full with that of the slope, which is rounded.
func (n *naive) compareFull(t *testing.T, s *simulation, v Verdict) {
	t.Helper()
	want := time.Duration(0)
	if n.grows() && n.perHour > 0 {
		live := uint64(0)
		for _, e := range s.events {
			if live += e.bytes; e.bytes == 0 {
				live -= e.block.bytes
			}
		}
		want = time.Duration(float64(80<<30-live) / float64(v.SlopeBytesPerHour) * 3600e9)
	}
	if (v.FullIn-want).Abs() > time.Second || v.Full {
		t.Fatalf("%s\nfull in %s, want %s", s, v.FullIn, want)
	}
}

// TestVerdictsOfRandomProgramsEqualNaiveOnes: their growth is about as large as their noise.
func TestVerdictsOfRandomProgramsEqualNaiveOnes(t *testing.T) {
	t.Parallel()
	states := map[string]int{}
	for seed := range uint64(24) {
		s := newSimulation(t, Config{})
		s.rng = rand.New(rand.NewPCG(seed, 5))
		n := newNaive()
		s.onWindow = func(s *simulation) {
			before := n.state
			n.judge(s.events, "GPU-0", int(s.now/schema.KTime(time.Minute)), schema.KTime(time.Minute), 80<<30/200)
			n.compare(t, s, s.verdict(0))
			states[before+"→"+n.state]++
		}
		leak, noise := s.rng.Uint64N(40)*mib, (1+s.rng.Uint64N(300))*mib
		var held []uint64
		s.until(100*time.Minute, func() {
			if leak > 0 && s.rng.IntN(3) > 0 {
				s.alloc(9, leak)
			}
			s.free(held...)
			held = s.allocs(8, s.rng.IntN(3), 1+s.rng.Uint64N(noise), time.Second)
			s.sleep(40*time.Second + time.Duration(s.rng.Int64N(int64(40*time.Second))))
		})
	}
	for _, change := range []string{"steady→growing", "growing→steady", "growing→suspect", "suspect→steady"} {
		if states[change] == 0 {
			t.Errorf("no program goes %s: %v", change, states)
		}
	}
}

// TestVerdictsEqualNaiveOnes compares every number of every verdict of every program, also with lost events.
func TestVerdictsEqualNaiveOnes(t *testing.T) {
	type program struct {
		name string
		run  func(*simulation)
	}
	var all []program
	for _, p := range leaks {
		all = append(all, program{p.name, p.run})
	}
	for _, p := range innocents {
		all = append(all, program{p.name, p.run})
	}
	for i, p := range all {
		for _, lossy := range []bool{false, true} {
			if lossy && i%3 > 0 {
				continue
			}
			name := p.name
			if lossy {
				name += ", with losses"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newSimulation(t, Config{Window: time.Duration(40+i) * time.Second})
				n := newNaive()
				if lossy {
					s.lossy = n.excluded
				}
				width := schema.KTime(s.tracker.cfg.Window)
				s.onWindow = func(s *simulation) {
					// 80 GiB: half a per cent is more than 256 MiB
					n.judge(s.events, "GPU-0", int(s.now/width), width, 80<<30/200)
					n.compare(t, s, s.verdict(0))
				}
				p.run(s)
				s.sleep(time.Minute)
			})
		}
	}
}
