package trend

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gputap/gputap/schema"
)

const (
	// MaxGroups is how many groups a verdict names.
	MaxGroups = 10

	maxTallies  = 4096 // groups that are distinguished
	manyWindows = 4    // groups with memory of fewer windows, such as a model, are kept if there are no others
)

// Group is live memory that one thread allocated since growth began, of one class and size class. Young memory does not
// count, because it may be freed soon.
type Group struct {
	TID         uint32
	Thread      string // its name
	Class       schema.MemClass
	SizeBits    uint8 // of the sizes
	Bytes       uint64
	Allocations uint64
	Oldest      schema.KTime
}

// SizeClass returns the largest power of two that is not above the sizes.
func (g *Group) SizeClass() uint64 {
	if g.SizeBits == 0 {
		return 0
	}
	return 1 << (g.SizeBits - 1)
}

// compare orders groups by bytes, the largest first.
func (g *Group) compare(to *Group) int {
	return cmp.Or(cmp.Compare(to.Bytes, g.Bytes), cmp.Compare(to.Allocations, g.Allocations),
		cmp.Compare(g.TID, to.TID), cmp.Compare(g.Thread, to.Thread), cmp.Compare(g.Class, to.Class),
		cmp.Compare(g.SizeBits, to.SizeBits))
}

// Survivors groups the live memory behind a verdict of growth.
type Survivors struct {
	Bytes uint64 // of all memory that counts, also in groups that are not named

	from, until, width schema.KTime
	index              map[uint64]int
	all                []tally
}

type tally struct {
	Group
	windows uint64 // bit n: some was allocated in a window n + 64 k
}

func (t *tally) often() int { return min(bits.OnesCount64(t.windows), manyWindows) }

// NewSurvivors returns an empty Survivors. A window has the given length.
func NewSurvivors(v *Verdict, width schema.KTime) *Survivors {
	return &Survivors{from: schema.KTime(v.Onset) * width, until: schema.KTime(v.OldUntil+1) * width, width: width,
		index: map[uint64]int{}}
}

// Since returns the time at which growth began. Memory from before belongs to no group.
func (s *Survivors) Since() schema.KTime { return s.from }

// Add adds live memory that was allocated at a time at or after Since. Memory of one place, below 2⁵⁶, has one thread
// and class. Add returns a group whose thread and class are not set yet, or nil.
func (s *Survivors) Add(place uint64, since schema.KTime, bytes uint64) (unnamed *Group) {
	size := uint8(bits.Len64(bytes))
	id := place<<8 | uint64(size)
	i, known := s.index[id]
	old := since < s.until
	if old {
		s.Bytes += bytes
	}
	switch {
	case known:
	case len(s.all) == maxTallies:
		return nil
	default:
		i, s.index[id] = len(s.all), len(s.all)
		s.all = append(s.all, tally{Group: Group{SizeBits: size}})
		unnamed = &s.all[i].Group
	}
	g := &s.all[i]
	g.windows |= 1 << (uint64(since/s.width) % 64)
	if !old {
		return unnamed
	}
	if g.Allocations == 0 || since < g.Oldest {
		g.Oldest = since
	}
	g.Bytes += bytes
	g.Allocations++
	return unnamed
}

// Groups returns the groups with the most bytes, those of many windows first.
func (s *Survivors) Groups() (groups []Group) {
	slices.SortFunc(s.all, func(a, b tally) int {
		return cmp.Or(cmp.Compare(b.often(), a.often()), a.compare(&b.Group))
	})
	for i := range s.all[:min(len(s.all), MaxGroups)] {
		if rare := s.all[i].often() < manyWindows; rare && s.all[0].often() == manyWindows {
			break
		}
		if s.all[i].Allocations > 0 {
			groups = append(groups, s.all[i].Group)
		}
	}
	return groups
}
