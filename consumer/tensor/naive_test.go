package tensor_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// naive judges a program from its changes alone: it replays all of them for every window and tries every pair. It knows
// the verdict before. It shares no code with package trend.
type naive struct {
	state            string
	hidden, fading   bool
	onset, last, old int // windows
	growth, perHour  uint64
}

// levels are what naive judges: the lowest bytes of each closed window, and the bytes of each that are still live.
type levels struct {
	windows []int
	lowest  []float64
	left    []float64
	blocks  bool // the bytes are those of blocks, which could explain growth
}

func (n *naive) grows() bool { return n.state == "growing" || n.state == "suspect" }

// closed returns the lowest levels of the last 30 closed windows.
func closed(changes []change, open int, level func(before float64, c *change) float64) (t levels) {
	first := int(changes[0].at/minute) + 1
	for w := max(first, open-30); w < open; w++ {
		now, low := 0.0, math.Inf(1)
		for i := range changes {
			c := &changes[i]
			if int(c.at/minute) > w {
				break
			}
			if int(c.at/minute) == w {
				low = min(low, now)
			}
			if now = level(now, c); int(c.at/minute) == w {
				low = min(low, now)
			}
		}
		t.windows, t.lowest = append(t.windows, w), append(t.lowest, min(low, now))
	}
	return t
}

// tensors and cache are the trends of a program.
func (p *program) tensors() levels {
	t := closed(p.changes, p.open, func(before float64, c *change) float64 { return before + float64(c.bytes) })
	t.blocks = true
	for _, w := range t.windows {
		left := 0.0
		for _, c := range p.changes {
			if c.bytes > 0 && int(c.at/minute) == w && p.live[c.ptr] > 0 {
				left += float64(c.bytes)
			}
		}
		t.left = append(t.left, left)
	}
	return t
}

func (p *program) cache() levels {
	return closed(p.changes, p.open, func(_ float64, c *change) float64 { return float64(c.cached) })
}

// rises returns for each window the rise above the first of the level to which memory never returned, and the largest
// rise that one window may add.
func (t *levels) rises() (rises []float64, most float64) {
	floor := func(k int) float64 { return slices.Min(t.lowest[k:]) }
	var steps []float64
	for k := range t.windows[1:] {
		steps = append(steps, floor(k+1)-floor(k))
	}
	sorted := slices.Sorted(slices.Values(steps))
	most = sorted[len(sorted)-4]
	rises = []float64{0}
	for k, step := range steps {
		rises = append(rises, rises[k]+min(step, most))
	}
	return rises, most
}

// begun returns where growth began.
func (t *levels) begun(rises []float64) (at int) {
	end := len(rises) - 1
	for k := range rises {
		if rises[k] == 0 || k >= 7 && k <= end-7 &&
			(rises[k]-rises[k-7])/7 < (rises[end]-rises[k])/float64(end-k)/4 {
			at = k
		}
	}
	return at
}

// pairs returns the median slope of all pairs by window, and the share of pairs that rise.
func pairs(of []float64) (median, rising float64) {
	var all []float64
	for i := range of {
		for j := i + 1; j < len(of); j++ {
			if all = append(all, (of[j]-of[i])/float64(j-i)); of[j] > of[i] {
				rising++
			}
		}
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, rising / float64(len(all))
}

// explained reports whether blocks of the first half of the growth that are still live explain half of it.
func (t *levels) explained(rises []float64, begin int, most float64) bool {
	end, sum, last := len(rises)-1, 0.0, begin
	for k := begin; k+(end-begin+1)/2 <= end; k++ {
		sum, last = sum+min(most, t.left[k]), k
	}
	return sum >= (rises[last]-rises[begin])/2
}

// survivors returns the bytes that each window leaves behind; 0: not all do, or the level does not rise with them.
func (t *levels) survivors() float64 {
	middle := func(v []float64) float64 { return slices.Sorted(slices.Values(v))[(len(v)-1)/2] }
	n := len(t.left)
	recent := n - n/4
	all, a, b, c := middle(t.left), middle(t.left[:recent/2]), middle(t.left[recent/2:recent]), middle(t.left[recent:])
	slope, _ := pairs(t.lowest)
	if n < 28 || min(a, b, c) < 0.75*max(a, b, min(c, b)) || slope < 0.75*all {
		return 0
	}
	return all
}

// judge gives the next verdict.
func (n *naive) judge(t levels) {
	before := *n
	*n = naive{state: "warming"}
	if len(t.windows) < 17 {
		return
	}
	rises, most := t.rises()
	begin, end := t.begun(rises), len(rises)-1
	grown, from := end-begin+1, 0
	if grown >= 17 {
		from = begin
	}
	slope, rising := pairs(rises[from:])
	n.state, n.perHour = "steady", uint64(math.Round(60*slope))
	quarter := max(begin, end-grown/4)
	now, earlier := rises[end]-rises[quarter], rises[quarter]-rises[begin]
	strict := rising >= 0.8 && now*float64(quarter-begin) >= 0.5*earlier*float64(end-quarter)
	loose := before.grows() && !before.hidden && rising >= 0.7 && now > 0 &&
		now*float64(quarter-begin) >= 0.125*earlier*float64(end-quarter)
	if grown < 17 || !strict && !loose || t.blocks && !t.explained(rises, begin, most) {
		if strict = false; t.blocks {
			slope = t.survivors()
		} else {
			slope = 0
		}
		if n.hidden = before.state != "suspect"; slope == 0 {
			if before.grows() && !before.fading { // one such window changes nothing
				before.fading = true
				*n = before
			}
			n.hidden = n.hidden && n.grows()
			return
		}
		begin, grown, n.perHour = 0, end+1, uint64(math.Round(60*slope))
	}
	n.state, n.onset, n.last, n.old = "growing", t.windows[begin], t.windows[end], t.windows[end]-grown/4
	more := grown - 1
	if before.grows() && before.hidden == n.hidden {
		n.onset, n.growth, more = before.onset, before.growth, n.last-before.last
	}
	n.growth += uint64(math.Round(slope * float64(more)))
	if n.growth >= 256*mib && n.last-n.onset+1 >= 30 && (strict || before.state == "suspect") {
		n.state = "suspect"
	}
}

// TestVerdictsEqualNaiveOnes compares every number of the verdicts of random programs after each window. Their growth
// is about as large as their noise.
func TestVerdictsEqualNaiveOnes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(16) {
		p := newProgram(t)
		p.rng = rand.New(rand.NewPCG(seed, 3))
		var tensors, cache naive
		var suspected uint64
		keep, waste := []uint64{0, 1, 6, 20}[seed%4]*mib, p.rng.Uint64N(20)*mib*(seed%3)
		p.alloc(2 * gib)
		var held []uint64
		open := -1
		p.minutes(90, func() {
			if keep > 0 && p.rng.IntN(8) > 0 {
				p.alloc(keep*7/8 + p.rng.Uint64N(keep/4))
			}
			p.reserved += keep + p.rng.Uint64N(1+waste)
			if p.rng.IntN(3) > 0 {
				return
			}
			old := held
			held = nil
			for range 4 + p.rng.IntN(16) {
				held = append(held, p.alloc((1+seed)*4*mib))
			}
			for _, ptr := range old {
				p.free(ptr)
			}
		}, func() {
			if len(p.changes) == 0 || p.open == open {
				return
			}
			open = p.open
			all := p.tensors()
			tensors.judge(all)
			cache.judge(p.cache())
			switch {
			case tensors.fading:
			case !tensors.grows():
				suspected = 0
			default:
				suspected = min(p.left(tensors.onset, tensors.old), tensors.growth)
			}
			p.compare(seed, &tensors, &cache, suspected)
			seen[tensors.state]++
			seen["cache "+cache.state]++
			if tensors.hidden {
				seen["hidden"]++
			}
		})
	}
	for _, state := range []string{"steady", "growing", "suspect", "hidden", "cache steady", "cache suspect"} {
		if seen[state] == 0 {
			t.Errorf("no verdict is %s: %v", state, seen)
		}
	}
}

// left returns the bytes of live blocks that windows left behind.
func (p *program) left(from, to int) (sum uint64) {
	for _, c := range p.changes {
		if w := int(c.at / minute); c.bytes > 0 && w >= from && w <= to && p.live[c.ptr] > 0 {
			sum += uint64(c.bytes)
		}
	}
	return sum
}

func (p *program) compare(seed uint64, tensors, cache *naive, suspected uint64) {
	p.t.Helper()
	got, since := p.verdict(), time.Time{}
	if tensors.grows() {
		since = p.h.Wall(schema.KTime(tensors.onset) * minute)
	}
	if tensors.state != "suspect" {
		suspected = 0
	}
	if got.State.String() != tensors.state || got.Cache.String() != cache.state ||
		got.PerHour-tensors.perHour+1 > 2 || got.CachePerHour-cache.perHour+1 > 2 || // they are rounded
		got.GrowthBytes != tensors.growth || got.SuspectBytes != suspected || !got.Since.Equal(since) {
		p.t.Fatalf("program %d, minute %d: got %+v\nwant %+v since %s, cache %+v, suspect %d", seed, p.open, got,
			*tensors, since, *cache, suspected)
	}
}
