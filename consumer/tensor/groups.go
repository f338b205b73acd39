package tensor

import (
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
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

// group finds the groups of a GPU whose blocks grow. It returns the bytes of all blocks that were handed out since
// growth began and are no longer young. It visits every live block of the GPU once.
func (s *state) group(d *device, width schema.KTime) (old uint64) {
	survivors := trend.NewSurvivors(&d.verdict, width)
	since := survivors.Since()
	for _, head := range d.sizes {
		for i := head; i != 0; i = s.blocks.at(i).next {
			b := s.blocks.at(i)
			if b.since < since {
				continue
			}
			if g := survivors.Add(uint64(b.tid), b.since, b.bytes); g != nil {
				g.TID, g.Thread = b.tid, s.comms[b.tid]
			}
		}
	}
	d.groups = survivors.Groups()
	return survivors.Bytes
}

func reportGroup(g *trend.Group, wall func(schema.KTime) time.Time) Group {
	return Group{TID: g.TID, Thread: g.Thread, SizeClass: g.SizeClass(), Bytes: g.Bytes, Allocations: g.Allocations,
		Oldest: wall(g.Oldest)}
}

func codeGroups(c *snapshot.Codec, all *[]trend.Group) {
	snapshot.List(c, all, 6, func(g *trend.Group) {
		snapshot.Uint(c, &g.TID)
		c.Byte(&g.SizeBits)
		c.String(&g.Thread)
		snapshot.Uint(c, &g.Bytes, &g.Allocations)
		snapshot.Uint(c, &g.Oldest)
		if g.SizeBits > 64 {
			c.Fail("a size of %d bits", g.SizeBits)
		}
	})
	if len(*all) > trend.MaxGroups {
		c.Fail("more than %d groups", trend.MaxGroups)
	}
}
