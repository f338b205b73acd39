package trend

import (
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Gaps are the windows of a host in which events may have been lost.
type Gaps struct {
	newest uint64
	lost   uint64 // bit i: window newest-i
}

// Mark excludes every window of this length that the time from one moment to another touches.
func (g *Gaps) Mark(width, from, to schema.KTime) {
	first, last := uint64(from/width), uint64(max(from, to)/width)
	if last > g.newest {
		g.lost <<= last - g.newest
		g.newest = last
	}
	for behind := g.newest - last; behind < slots && behind <= g.newest-first; behind++ {
		g.lost |= 1 << behind
	}
}

// Has reports whether window w is excluded.
func (g *Gaps) Has(w uint64) bool {
	return w <= g.newest && g.newest-w < slots && g.lost>>(g.newest-w)&1 == 1
}

// Code passes over the windows.
func (g *Gaps) Code(c *snapshot.Codec) { snapshot.Uint(c, &g.newest, &g.lost) }
