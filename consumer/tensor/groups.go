package tensor

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Group is live blocks that one thread was handed since growth began, of one size class.
type Group struct {
	TID         uint32
	Thread      string // its name; "" if unknown
	SizeClass   uint64 // the largest power of two that is not above the sizes
	Bytes       uint64 // without young blocks, which may be taken back soon
	Allocations uint64
	Oldest      time.Time
}

type group struct {
	tid    uint32
	size   uint8 // bits of the sizes
	comm   string
	bytes  uint64
	blocks uint64
	oldest schema.KTime
}

// Those of package leak.
const (
	maxGroups   = 10   // of one GPU
	maxTallies  = 4096 // groups that a scan distinguishes
	manyWindows = 4    // groups with blocks of fewer windows, such as a model, are kept if there are no others
)

// tally is a group while blocks are counted.
type tally struct {
	group
	windows uint64 // bit n: some were handed out in a window n + 64 k
}

func (t *tally) often() int { return min(bits.OnesCount64(t.windows), manyWindows) }

// group finds the groups of a GPU whose blocks grow. It returns the bytes of all blocks that were handed out since
// growth began and are no longer young. It visits every live block of the GPU once.
func (s *state) group(d *device, width schema.KTime) (old uint64) {
	from, until := schema.KTime(d.verdict.Onset)*width, schema.KTime(d.verdict.OldUntil+1)*width
	at, all := map[uint64]int{}, []tally{} // by thread and size
	for _, head := range d.sizes {
		for i := head; i != 0; i = s.blocks.at(i).next {
			b := s.blocks.at(i)
			if b.since < from {
				continue
			}
			if b.since < until {
				old += b.bytes
			}
			size := uint8(bits.Len64(b.bytes))
			id := uint64(b.tid)<<8 | uint64(size)
			k, known := at[id]
			switch {
			case known:
			case len(all) == maxTallies:
				continue
			default:
				k, at[id] = len(all), len(all)
				all = append(all, tally{group: group{tid: b.tid, comm: s.comms[b.tid], size: size}})
			}
			all[k].windows |= 1 << (uint64(b.since/width) % 64)
			if b.since < until {
				all[k].add(b)
			}
		}
	}
	d.groups = largestGroups(all)
	return old
}

// largestGroups returns the groups with the most bytes, those of many windows first.
func largestGroups(all []tally) (groups []group) {
	slices.SortFunc(all, func(a, b tally) int {
		return cmp.Or(cmp.Compare(b.often(), a.often()), a.compare(&b.group))
	})
	for i := range all[:min(len(all), maxGroups)] {
		if rare := all[i].often() < manyWindows; rare && all[0].often() == manyWindows {
			break
		}
		if all[i].blocks > 0 {
			groups = append(groups, all[i].group)
		}
	}
	return groups
}

func (g *group) add(b *block) {
	if g.blocks == 0 || b.since < g.oldest {
		g.oldest = b.since
	}
	g.bytes += b.bytes
	g.blocks++
}

// compare orders groups by bytes, the largest first.
func (g *group) compare(to *group) int {
	return cmp.Or(cmp.Compare(to.bytes, g.bytes), cmp.Compare(to.blocks, g.blocks), cmp.Compare(g.tid, to.tid),
		cmp.Compare(g.size, to.size))
}

func (g *group) report(wall func(schema.KTime) time.Time) Group {
	size := uint64(0)
	if g.size > 0 {
		size = 1 << (g.size - 1)
	}
	return Group{TID: g.tid, Thread: g.comm, SizeClass: size, Bytes: g.bytes, Allocations: g.blocks,
		Oldest: wall(g.oldest)}
}

func codeGroups(c *snapshot.Codec, all *[]group) {
	snapshot.List(c, all, 6, func(g *group) {
		snapshot.Uint(c, &g.tid)
		c.Byte(&g.size)
		c.String(&g.comm)
		snapshot.Uint(c, &g.bytes, &g.blocks)
		snapshot.Uint(c, &g.oldest)
		if g.size > 64 {
			c.Fail("a size of %d bits", g.size)
		}
	})
	if len(*all) > maxGroups {
		c.Fail("more than %d groups", maxGroups)
	}
}
