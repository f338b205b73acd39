package producer

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// gomaxprocs asks for a second thread of Go while rings fill: one thread publishes while the other reads. On a quiet
// host two threads would only wake each other.
type gomaxprocs struct {
	set   func(n int) // may be nil
	two   bool
	until schema.KTime
}

const (
	busyFill = 500 // per mille of a ring
	busyFor  = schema.KTime(time.Second)
)

// adjust takes the fill of the fullest ring.
func (g *gomaxprocs) adjust(fill uint64, now schema.KTime) {
	if fill >= busyFill {
		g.until = now + busyFor
	}
	if two := now < g.until; g.set != nil && two != g.two {
		g.two = two
		if two {
			g.set(2)
		} else {
			g.set(1)
		}
	}
}
