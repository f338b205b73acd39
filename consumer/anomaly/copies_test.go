package anomaly

import (
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	slow     = "copy_regression warning" + firing
	slowOver = "copy_regression warning" + cleared
	advice   = "pageable_copies info" + firing
	adviceNo = "pageable_copies info" + cleared
)

// copies runs n windows of 40 copies each from a second on, and returns the second after them.
func (w *world) copies(p *consumertest.Process, n int, c copying, at float64) float64 {
	for range n {
		w.copy(p, c, at+1)
		at += 10
		w.tick(at, at)
	}
	return at
}

// moving returns the run of a scenario that makes 40 copies in each window, at the rates given in GB/s.
func moving(c copying, rates ...float64) func(*world, *consumertest.Process) {
	c.n, c.bytes = 40, 4*mib
	return func(w *world, p *consumertest.Process) {
		at := 20.0
		for _, c.rate = range rates {
			at = w.copies(p, 1, c, at)
		}
	}
}

// rates returns n times the same rate, and then more.
func rates(n int, rate float64, more ...float64) (all []float64) {
	for range n {
		all = append(all, rate)
	}
	return append(all, more...)
}

func TestCopyRegression(t *testing.T) {
	t.Parallel()
	h2d, d2h := copying{direction: schema.HtoD}, copying{direction: schema.DtoH}
	var noisy []float64
	for i := range 40 {
		noisy = append(noisy, 20+float64(i*7%13)-6)
	}
	for _, s := range []scenario{
		{"to half", everything, moving(h2d, rates(20, 24, 12, 12, 12)...), []string{slow}},
		{"by a quarter, the other way", everything, moving(d2h, rates(20, 24, 18, 18, 18)...), []string{slow}},
		{"and back", everything, moving(h2d, rates(20, 24, 12, 12, 12, 24)...), []string{slow, slowOver}},
		{"for good: it is the usual throughput after ten minutes", everything,
			moving(h2d, append(rates(20, 24), rates(70, 12)...)...), []string{slow, slowOver}},
		{"and then none for ten minutes", everything, func(w *world, p *consumertest.Process) {
			moving(h2d, rates(20, 24, 12, 12, 12)...)(w, p)
			w.tick(260, 860)
		}, []string{slow, slowOver}},
		{"far below a noisy baseline", everything, moving(h2d, slices.Concat(noisy, rates(3, 3))...), []string{slow}},
		{"pinned memory", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, 4 * mib, 24, schema.HostMemPinned}, 20)
			w.copies(p, 3, copying{schema.HtoD, false, 40, 4 * mib, 8, schema.HostMemPinned}, at)
		}, []string{slow}},
		{"mode observe", rule.Config{Mode: rule.Observe}, moving(h2d, rates(20, 24, 12, 12, 12)...),
			[]string{"copy_regression info" + firing}},

		{"steady", everything, moving(h2d, rates(40, 24)...), nil},
		{"by a sixth", everything, moving(h2d, append(rates(20, 24), rates(20, 20)...)...), nil},
		{"two windows", everything, moving(h2d, rates(20, 24, 12, 12, 24, 12, 12, 24)...), nil},
		{"within a noisy baseline", everything, moving(h2d, slices.Concat(noisy, rates(4, 13))...), nil},
		{"too early", everything, moving(h2d, rates(8, 24, 12, 12, 12, 12)...), nil},
		{"from pinned memory to pageable memory", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, 4 * mib, 24, schema.HostMemPinned}, 20)
			w.copies(p, 10, copying{schema.HtoD, false, 40, 4 * mib, 8, schema.HostMemPageable}, at)
		}, nil},
		{"other sizes", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, 64 * mib, 24, 0}, 20)
			w.copies(p, 10, copying{schema.HtoD, false, 40, mib, 6, 0}, at)
		}, nil},
		{"another GPU", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, 4 * mib, 24, 0}, 20)
			p.GPU = &schema.GPU{UUID: "GPU-2", Ordinal: 1}
			w.copies(p, 10, copying{schema.HtoD, false, 40, 4 * mib, 12, 0}, at)
		}, nil},
		{"two threads share the link", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, 4 * mib, 24, 0}, 20)
			w.copies(p, 10, copying{schema.HtoD, false, 80, 4 * mib, 12, 0}, at)
		}, nil},
		{"few copies", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 29, 4 * mib, 24, 0}, 20)
			w.copies(p, 10, copying{schema.HtoD, false, 29, 4 * mib, 12, 0}, at)
		}, nil},
		{"small copies", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, mib - 1, 24, 0}, 20)
			w.copies(p, 10, copying{schema.HtoD, false, 40, mib - 1, 12, 0}, at)
		}, nil},
		{"asynchronous copies", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, true, 40, 4 * mib, 24, 0}, 20)
			w.copies(p, 10, copying{schema.HtoD, true, 40, 4 * mib, 12, 0}, at)
		}, nil},
		{"windows with losses", everything, func(w *world, p *consumertest.Process) {
			at := w.copies(p, 20, copying{schema.HtoD, false, 40, 4 * mib, 24, 0}, 20)
			for range 5 {
				w.host.Header.Lost[schema.LossBulkRing]++
				at = w.copies(p, 1, copying{schema.HtoD, false, 40, 4 * mib, 12, 0}, at)
			}
		}, nil},
	} {
		s.test(t)
	}
}

func TestPageableCopies(t *testing.T) {
	t.Parallel()
	pageable := copying{schema.HtoD, true, 40, 16 * mib, 5, schema.HostMemPageable}
	pinned, half := pageable, pageable
	pinned.memory, half.n = schema.HostMemPinned, 20
	// both makes copies of two kinds in each of n windows.
	both := func(n int, a, b copying) func(*world, *consumertest.Process) {
		return func(w *world, p *consumertest.Process) {
			at := 20.0
			for range n {
				w.copy(p, a, at+1)
				at = w.copies(p, 1, b, at)
			}
		}
	}
	one := func(n int, c copying) func(*world, *consumertest.Process) {
		return func(w *world, p *consumertest.Process) { w.copies(p, n, c, 20) }
	}
	for _, s := range []scenario{
		{"for five minutes", everything, one(31, pageable), []string{advice}},
		{"synchronous, the other way", everything,
			one(31, copying{schema.DtoH, false, 40, 16 * mib, 5, schema.HostMemPageable}), []string{advice}},
		{"until memory is pinned", everything, func(w *world, p *consumertest.Process) {
			w.copies(p, 10, pinned, w.copies(p, 40, pageable, 20))
		}, []string{advice, adviceNo}},
		{"mode observe", rule.Config{Mode: rule.Observe}, one(31, pageable), []string{advice}},
		{"beside fewer pinned ones", everything, both(31, half, pageable), []string{advice}},
		{"twice as often", everything, both(31, pageable, pageable), []string{advice}},

		{"a model load of four minutes", everything, one(24, pageable), nil},
		{"a model load every ten minutes", everything, func(w *world, p *consumertest.Process) {
			at := 20.0
			for range 5 {
				at = w.copies(p, 36, pinned, w.copies(p, 24, pageable, at))
			}
		}, nil},
		{"pinned", everything, one(60, pinned), nil},
		{"mostly pinned", everything, both(60, half, pinned), nil},
		{"few bytes", everything, one(60, copying{schema.HtoD, true, 15, 16 * mib, 5, schema.HostMemPageable}), nil},
		{"between GPUs", everything, one(60, copying{schema.DtoD, true, 40, 16 * mib, 5, schema.HostMemPageable}), nil},
		{"unknown", everything, one(60, copying{schema.HtoD, true, 40, 16 * mib, 5, schema.HostMemUnknown}), nil},
		{"of a newer producer", everything, one(60, copying{schema.HtoD, true, 40, 16 * mib, 5, 17}), nil},
	} {
		s.test(t)
	}
}
