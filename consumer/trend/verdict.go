package trend

import (
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// State is the result of a judgement.
type State uint8

// States of a Series.
const (
	Warming State = iota // too young
	Steady               // does not grow
	Growing              // grows, and still did at the end
	Suspect              // has grown for long and by much
	Unknown              // too many windows are excluded
	numStates
)

var stateWords = [numStates]string{
	Warming: "warming", Steady: "steady", Growing: "growing", Suspect: "suspect", Unknown: "unknown",
}

// String returns the word in reports and snapshots.
func (s State) String() string { return stateWords[min(s, Unknown)] }

// Grows reports whether the state is Growing or Suspect.
func (s State) Grows() bool { return s == Growing || s == Suspect }

// Verdict is a judgement with its evidence. The fields after Excluded are 0 in the states Warming and Unknown, and
// those after Rising also in the state Steady.
type Verdict struct {
	State    State
	Windows  int // closed windows that count, at most Kept
	Excluded int // closed windows that do not count because events were lost
	Newest   uint64
	PerHour  uint64 // Theil–Sen slope, bytes per hour
	Rising   int    // percent of the pairs of floors that rise

	Onset    uint64 // window in which growth began
	Growth   uint64 // bytes since then
	OldUntil uint64 // newest window whose allocations are older than a quarter of the time
	Hidden   bool   // survivors alone show the growth
	Fading   bool   // the last window no longer shows the growth; another such window makes the series Steady
}

// Criteria are the rules that depend on the subject.
type Criteria struct {
	Suspect uint64 // growth that makes a series Suspect, in bytes
	Level   bool   // the series has no allocations, which could explain its growth
	Residue bool   // survivors may prove growth that fluctuation hides; it alone makes no series Suspect
	Doubt   bool   // frees of memory that was never seen: the true level may fall, so Growing is the most
}

// Judge returns the verdict when all windows before open are closed. last is the verdict before.
func (s *Series) Judge(last Verdict, open uint64, gaps *Gaps, c Criteria) Verdict {
	from := max(s.first, open-min(open, Kept))
	if open < from+Fewest {
		return Verdict{State: Warming, Windows: int(open - min(open, from))}
	}
	var f floors
	f.load(s, from, open, gaps)
	v := Verdict{State: Unknown, Windows: f.n, Excluded: int(open-from) - f.n}
	if f.n < Fewest {
		return v
	}
	g, grows := s.growth(&f, &last, c)
	v.State, v.Newest, v.Rising, v.PerHour = Steady, f.window[f.n-1], g.rising, s.perHour(g.perWindow)
	if !grows {
		return v.steady(last)
	}
	grown := v.Newest - g.onset + 1
	v.State, v.Onset, v.OldUntil = Growing, g.onset, v.Newest-grown/4
	v.Hidden = g.hidden && last.State != Suspect
	v.addGrowth(&last, g.perWindow, grown)
	if v.Growth >= c.Suspect && v.Newest-v.Onset+1 >= Kept && !c.Doubt && (g.strict || last.State == Suspect) {
		v.State = Suspect
	}
	return v
}

// growth is how a series grows.
type growth struct {
	perWindow float64 // bytes
	rising    int     // percent of the pairs of floors that rise
	onset     uint64  // window in which it began
	strict    bool    // by the rules for a series that did not grow before
	hidden    bool    // survivors alone show it
}

// growth looks for growth in the floors, then in the survivors. If neither grows, onset, strict and hidden are not set.
func (s *Series) growth(f *floors, last *Verdict, c Criteria) (g growth, grows bool) {
	largest := f.clip()
	onset := f.onset()
	grown := f.window[f.n-1] - f.window[onset] + 1
	base := 0
	if grown >= Fewest {
		base = onset
	}
	g.perWindow, g.rising = f.theilSen(base)
	continues, half := f.recent(onset, grown/4)
	strict := g.rising >= 80 && half
	loose := last.State.Grows() && !last.Hidden && g.rising >= 70 && continues
	if grown >= Fewest && (strict || loose) && (c.Level || s.survives(f, onset, grown/2, largest)) {
		g.onset, g.strict = f.window[onset], strict
		return g, true
	}
	if c.Residue {
		if perWindow, holds := s.residue(f); holds {
			return growth{perWindow, g.rising, f.window[0], false, true}, true
		}
	}
	return g, false
}

func (s *Series) perHour(perWindow float64) uint64 {
	return whole(perWindow * (float64(time.Hour) / float64(s.width)))
}

// addGrowth sets the growth over the windows in which v grew. If the verdict before shows the same growth, its onset
// stays, and only the windows since then are added: the rate may have changed.
func (v *Verdict) addGrowth(last *Verdict, perWindow float64, windows uint64) {
	more := windows - 1
	if last.State.Grows() && last.Hidden == v.Hidden {
		v.Onset, v.Growth = last.Onset, last.Growth
		more = v.Newest - min(v.Newest, last.Newest)
	}
	v.Growth += whole(perWindow * float64(more))
}

// steady returns v, unless the series grew in the window before: a program frees its memory before it ends, and the
// last verdict of a process must not depend on whether a window closes in between.
func (v Verdict) steady(last Verdict) Verdict {
	if last.State.Grows() && !last.Fading {
		last.Fading, last.Windows, last.Excluded = true, v.Windows, v.Excluded
		return last
	}
	return v
}

// whole rounds a number of bytes. Numbers that no GPU has become 2^62: how larger ones convert depends on the CPU.
func whole(bytes float64) uint64 { return uint64(min(math.Round(bytes), 1<<62)) }

// survives reports whether the allocations that are older than half of the time and still live explain half of the
// growth until then.
func (s *Series) survives(f *floors, onset int, half, largest uint64) bool {
	old, k := uint64(0), onset
	for ; f.window[k]+half <= f.window[f.n-1]; k++ {
		if w := f.window[k]; w <= s.current {
			old += min(s.births[w%slots], largest)
		}
	}
	return 2*old >= f.level[max(k-1, onset)]-f.level[onset]
}

// floors are the levels to which memory never returned, of the windows that count.
type floors struct {
	n      int
	window [Kept]uint64 // numbers, rising
	level  [Kept]uint64 // never falling; after clip above the first
}

// load reads the windows from one to before another.
func (f *floors) load(s *Series, from, to uint64, gaps *Gaps) {
	for w := from; w < to; w++ {
		if bytes, known := s.minimum(w); known && !gaps.Has(w) {
			f.window[f.n], f.level[f.n] = w, bytes
			f.n++
		}
	}
	for k := f.n - 2; k >= 0; k-- {
		f.level[k] = min(f.level[k], f.level[k+1])
	}
}

// clip limits each step to the fourth largest, which it returns, and drops steps across excluded windows.
func (f *floors) clip() (largest uint64) {
	var steps, sorted [Kept]uint64
	for k := 1; k < f.n; k++ {
		if f.window[k] == f.window[k-1]+1 {
			steps[k] = f.level[k] - f.level[k-1]
		}
	}
	sorted = steps
	slices.Sort(sorted[:])
	largest = sorted[Kept-4]
	f.level[0] = 0
	for k := 1; k < f.n; k++ {
		f.level[k] = f.level[k-1] + min(steps[k], largest)
	}
	return largest
}

// onset returns the index of the window after which memory began to grow: the last one at the lowest floor, or a later
// one before which floors rose for some windows less than a quarter as fast as after it.
func (f *floors) onset() (k int) {
	end := f.n - 1
	for k = end - pause; k >= pause; k-- {
		before, after := f.level[k]-f.level[k-pause], f.level[end]-f.level[k]
		if 4*before*(f.window[end]-f.window[k]) < after*(f.window[k]-f.window[k-pause]) {
			return k
		}
	}
	for k = 0; k < end && f.level[k+1] == 0; k++ {
	}
	return k
}

// theilSen returns the median of the slopes of all pairs of windows from index base on, in bytes per window, and the
// percentage of the pairs that rise.
func (f *floors) theilSen(base int) (slope float64, rising int) {
	var slopes [Kept * (Kept - 1) / 2]float64
	pairs := 0
	for j := base; j < f.n; j++ {
		for i := base; i < j; i++ {
			rise := f.level[j] - f.level[i]
			if rise > 0 {
				rising++
			}
			slopes[pairs] = float64(rise) / float64(f.window[j]-f.window[i])
			pairs++
		}
	}
	all := slopes[:pairs]
	slices.Sort(all)
	return (all[(pairs-1)/2] + all[pairs/2]) / 2, 100 * rising / pairs
}

// recent reports whether the last quarter of the windows since onset rises at least an eighth as fast as those before
// it, and whether half as fast.
func (f *floors) recent(onset int, quarter uint64) (eighth, half bool) {
	end := f.n - 1
	k := end
	for k > onset && f.window[k]+quarter > f.window[end] {
		k--
	}
	rise := f.level[end] - f.level[k]
	// both rates are compared as products; levels are far below 2^56
	now, before := rise*(f.window[k]-f.window[onset]), (f.level[k]-f.level[onset])*(f.window[end]-f.window[k])
	return rise > 0 && 8*now >= before, 2*now >= before
}

// CodeState passes over a state.
func CodeState(c *snapshot.Codec, s *State) {
	word := s.String()
	c.String(&word)
	if c.Reading() {
		if *s = State(slices.Index(stateWords[:], word)); *s >= numStates {
			c.Fail("%q is no state", word)
			*s = Unknown
		}
	}
}

// Code passes over a verdict.
func (v *Verdict) Code(c *snapshot.Codec) {
	CodeState(c, &v.State)
	c.Below(&v.Windows, Kept+1)
	c.Below(&v.Excluded, Kept+1)
	c.Below(&v.Rising, 101)
	snapshot.Uint(c, &v.PerHour, &v.Newest, &v.Onset, &v.Growth, &v.OldUntil)
	c.Bool(&v.Hidden, &v.Fading)
}

// Code passes over the series without its live memory, which the caller restores. open is the first window that is not
// closed. A restored series needs the length of a window from NewSeries.
func (s *Series) Code(c *snapshot.Codec, open uint64) {
	snapshot.Uint(c, &s.current, &s.first, &s.before)
	from := max(s.first, open-min(open, Kept), s.current-min(s.current, slots-1))
	if c.Reading() {
		s.start = schema.KTime(s.current) * s.width
		if s.current > math.MaxUint64/uint64(s.width) || s.first > s.current+1 {
			c.Fail("window %d is too late, or before %d", s.current, s.first)
		}
	}
	last := s.before
	for w := from; w <= s.current && !c.Failed(); w++ {
		more := int64(s.minima[w%slots] - last)
		snapshot.Int(c, &more)
		last += uint64(more)
		s.minima[w%slots] = last
	}
}
