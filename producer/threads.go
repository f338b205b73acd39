package producer

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// threads asks for a second thread of Go while rings fill: one sends what the other makes. On a quiet host two would only
// wake each other.
type threads struct {
	set   func(n int) // nil: nobody is asked
	two   bool
	until schema.KTime
}

const (
	busyFill = 500 // per mille of a ring
	busyFor  = schema.KTime(time.Second)
)

// use is told how full the fullest ring is.
func (t *threads) use(fill uint64, now schema.KTime) {
	if fill >= busyFill {
		t.until = now + busyFor
	}
	if two := now < t.until; t.set != nil && two != t.two {
		t.two = two
		if two {
			t.set(2)
		} else {
			t.set(1)
		}
	}
}
