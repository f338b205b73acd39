package analyze

import (
	"cmp"
	"container/heap"
	"iter"

	"github.com/gputap/gputap/cmd/internal/plot"
)

// sum adds step functions, a point at a time: each point of a function changes the total. Of points at one time, those
// of earlier functions come first. A point takes time by the logarithm of the number of functions.
func sum(parts []iter.Seq[plot.Point]) iter.Seq[plot.Point] {
	if len(parts) == 1 {
		return parts[0]
	}
	return func(yield func(plot.Point) bool) {
		var open steps
		total := 0.0
		for i, points := range parts {
			next, stop := iter.Pull(points)
			defer stop()
			if head, more := next(); more {
				open = append(open, &step{next: next, head: head, number: i})
			}
		}
		heap.Init(&open)
		for len(open) > 0 {
			first := open[0]
			total += first.head.Value - first.value
			if !yield(plot.Point{At: first.head.At, Value: total}) {
				return
			}
			first.value = first.head.Value
			head, more := first.next()
			if first.head = head; more {
				heap.Fix(&open, 0)
			} else {
				heap.Pop(&open)
			}
		}
	}
}

// step is a step function while it is added.
type step struct {
	next   func() (plot.Point, bool)
	head   plot.Point // the next one
	value  float64    // at the last one
	number int        // in the order of the functions
}

// steps is a heap: the function with the earliest next point is the first.
type steps []*step

func (s steps) Len() int { return len(s) }

func (s steps) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(s[i].head.At, s[j].head.At), cmp.Compare(s[i].number, s[j].number)) < 0
}

func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

func (s *steps) Push(one any) { *s = append(*s, one.(*step)) }

func (s *steps) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}
