package simulate

import (
	"math/bits"
	"slices"

	"github.com/gputap/gputap/schema"
)

// Events keep their rhythm within a window. The window is short if events are rare, so that a host has its rate within
// the age of each batch.
const (
	leastWindow = 8
	mostWindow  = 512
)

// pace maps recorded times to times of a life. The map is piecewise linear and never decreases. Each window of events
// gets its share of the time.
type pace struct {
	from []schema.KTime // recorded, rising
	to   []schema.KTime // since the start of the life
}

// newPace spreads events at these recorded times over [begin, end], window by window. It sorts times.
func newPace(times []schema.KTime, begin, end schema.KTime, window uint64) pace {
	slices.Sort(times)
	n := uint64(len(times))
	p := pace{from: []schema.KTime{times[0]}, to: []schema.KTime{begin}}
	for i := window; i < n; i += window {
		p.knot(times[i], begin+share(end-begin, i, n))
	}
	p.knot(times[n-1]+1, end)
	return p
}

func (p *pace) knot(from, to schema.KTime) {
	if from > p.from[len(p.from)-1] {
		p.from, p.to = append(p.from, from), append(p.to, to)
	}
}

// of maps a recorded time. Before the first and after the last event the map has slope 1, with a minimum of 0.
func (p *pace) of(t schema.KTime) schema.KTime {
	last := len(p.from) - 1
	switch {
	case t < p.from[0]:
		return p.to[0] - min(p.from[0]-t, p.to[0])
	case t >= p.from[last]:
		return p.to[last] + t - p.from[last]
	}
	i, found := slices.BinarySearch(p.from, t)
	if found {
		return p.to[i]
	}
	i--
	return p.to[i] + share(p.to[i+1]-p.to[i], uint64(t-p.from[i]), uint64(p.from[i+1]-p.from[i]))
}

// share returns whole × part / of, for part ≤ of.
func share(whole schema.KTime, part, of uint64) schema.KTime {
	hi, lo := bits.Mul64(uint64(whole), part)
	q, _ := bits.Div64(hi, lo, of)
	return schema.KTime(q)
}
