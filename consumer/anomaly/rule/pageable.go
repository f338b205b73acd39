package rule

import (
	"fmt"
	"math"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/schema"
)

// pageableCopies finds processes that copy much from or to pageable host memory, which is slower than pinned memory and
// makes asynchronous copies wait. It is an advice: its severity is always info.
//
// A window counts if the process copies MinBytesPerSecond in large copies, more than half of it pageable. Five minutes
// of such windows in a row fire, so a program that only loads its data this way raises nothing. The alert clears after
// a minute of other windows. Copies whose host memory is unknown do not count as pageable.
type pageableCopies struct {
	base
	PageableCopies
}

const (
	pageableWindows = 30
	pageableQuiet   = 6
)

func (*pageableCopies) Kinds() []schema.Kind { return []schema.Kind{schema.KindCopy} }

func (r *pageableCopies) Window(w *Window) {
	s, n := &w.Process.State.pageable, &w.Counts
	least := float64(r.MinBytesPerSecond) * windowLength.Seconds()
	odd := 2*n.Pageable > n.Copied && float64(n.Pageable) >= least
	switch {
	case !w.Complete:
		if odd && s.windows+1 >= pageableWindows {
			r.suppress("gap")
		}
	case s.firing:
		if odd {
			s.windows = 0
			return
		}
		if s.windows++; s.windows >= pageableQuiet {
			*s = streak{}
			r.set.book.Clear(r.key(w.Process, ""), w.end(), "it copies little from or to pageable memory")
		}
	case !odd:
		*s = streak{}
	default:
		s.odd(w, w.spans[schema.KindCopy].from)
		if s.windows >= pageableWindows {
			r.fireAdvice(w, s)
			s.firing, s.windows = true, 0
		}
	}
}

func (r *pageableCopies) fireAdvice(w *Window, s *streak) {
	r.fire(w.Process, r.key(w.Process, ""), w.end(), w.spans[schema.KindCopy].to, func() alert.Alert {
		a := w.about(schema.KindCopy, s.seqFrom)
		a.Severity, a.Since, a.Bytes = alert.Info, s.began(w), w.Counts.Pageable
		a.Value, a.Baseline = float64(w.Counts.Pageable), float64(w.Counts.Copied)
		a.Score = math.Round(100*a.Value/a.Baseline) / 100
		a.Message = fmt.Sprintf("%s (pid %d) on %s copies %s per second from or to pageable memory, %.0f %% of its "+
			"large copies, for five minutes now. Pin that memory: pin_memory=True in PyTorch, cudaHostAlloc in CUDA.",
			a.Comm, a.PID, a.Host, iec(a.Value/windowLength.Seconds()), 100*a.Score)
		return a
	})
}
