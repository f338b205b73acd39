package rule

import (
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// windowLength is the length of all windows. They are aligned in the event time of each boot.
const windowLength = 10 * time.Second

// maxOpen limits the windows that may be open at a time. Events are seldom more than two windows before their tick.
const maxOpen = 8

// Index numbers the windows of a boot.
type Index uint64

// IndexOf returns the window of a time.
func IndexOf(t schema.KTime) Index { return Index(uint64(t) / uint64(windowLength)) }

// open holds the values of the windows that are not complete yet. When a ninth window opens, the oldest is lost.
type open[T any] [maxOpen]struct {
	number Index // 1 + index of the window; 0: not in use
	value  T
}

// at returns the value of a window, to be added to; nil if newer windows have displaced it.
func (o *open[T]) at(index Index) *T {
	s := &o[index%maxOpen]
	if s.number > index+1 {
		return nil
	}
	if s.number < index+1 {
		s.number, s.value = index+1, *new(T)
	}
	return &s.value
}

// take removes the value of a window and returns it. known is false if newer windows have displaced it.
func (o *open[T]) take(index Index) (value T, known bool) {
	s := &o[index%maxOpen]
	if s.number > index+1 {
		return value, false
	}
	if s.number == index+1 {
		value = s.value
	}
	s.number, s.value = 0, *new(T)
	return value, true
}

// code passes over the windows in use.
func (o *open[T]) code(c *snapshot.Codec, least int, value func(*T)) {
	var used []Index
	for i := range o {
		if o[i].number > 0 {
			used = append(used, o[i].number)
		}
	}
	snapshot.List(c, &used, 1+least, func(number *Index) {
		snapshot.Uint(c, number)
		if *number == 0 || c.Reading() && o[(*number-1)%maxOpen].number != 0 {
			c.Fail("window %d", *number)
			return
		}
		s := &o[(*number-1)%maxOpen]
		s.number = *number
		value(&s.value)
	})
}

// maxHistory is the number of windows in a baseline: ten minutes.
const maxHistory = 60

// history is the values of the last windows in which a process did something.
type history struct {
	values []float32
	oldest int // index of the oldest value once all places are taken
}

func (h *history) add(v float64) {
	if len(h.values) < maxHistory {
		h.values = append(h.values, float32(v))
		return
	}
	h.values[h.oldest] = float32(v)
	h.oldest = (h.oldest + 1) % maxHistory
}

// median returns the median and the median of the distances from it; 0 without values.
func (h *history) median() (median, deviation float64) {
	if len(h.values) == 0 {
		return 0, 0
	}
	var scratch [maxHistory]float32 // on the stack
	all := scratch[:copy(scratch[:], h.values)]
	center := middle(all)
	for i := range all {
		all[i] = max(all[i]-center, center-all[i])
	}
	return float64(center), float64(middle(all))
}

// middle sorts v and returns its median.
func middle(v []float32) float32 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// within counts the values between low and high.
func (h *history) within(low, high float64) (n int) {
	for _, v := range h.values {
		if float64(v) >= low && float64(v) <= high {
			n++
		}
	}
	return n
}

func (h *history) code(c *snapshot.Codec) {
	values := slices.Concat(h.values[h.oldest:], h.values[:h.oldest]) // oldest first
	snapshot.List(c, &values, 4, func(v *float32) {
		c.Float32(v)
		if *v != *v { // NaN has no place in an order
			c.Fail("a value is not a number")
		}
	})
	if len(values) > maxHistory {
		c.Fail("%d windows, at most %d", len(values), maxHistory)
	} else if c.Reading() {
		h.values = values
	}
}

// streak counts the windows in a row that look odd.
type streak struct {
	windows uint64
	since   Index  // of the first
	seqFrom uint64 // first batch of the first
	firing  bool
}

// odd counts one more odd window. from is the first batch of it.
func (s *streak) odd(w *Window, from uint64) {
	if s.windows == 0 {
		s.since, s.seqFrom = w.index, from
	}
	s.windows++
}

func (s *streak) code(c *snapshot.Codec) {
	snapshot.Uint(c, &s.windows, &s.seqFrom)
	snapshot.Uint(c, &s.since)
	c.Bool(&s.firing)
}

// began returns the wall time at which the streak began.
func (s *streak) began(w *Window) time.Time {
	return w.Wall(schema.KTime(s.since) * schema.KTime(windowLength))
}
