package rule

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// copyRegression finds synchronous copies that became slower.
//
// It compares large copies of one process with earlier ones of the same GPU, direction, size class and kind of host
// memory. A window counts if it has 30 of them. Its throughput is odd if it is Percent below the median of the windows
// before, at least two minutes of them, and below their spread. More bytes than usual mean that several threads share
// the link; such a window is not odd. Three odd windows in a row fire. The alert clears at half the threshold, and
// after ten minutes, also if the process makes fewer copies then.
type copyRegression struct {
	base
	CopyRegression
}

const (
	minCopies  = 30  // in a window
	warmCopies = 12  // windows before a baseline counts
	maxRoutes  = 16  // of one process
	maxDrop    = 0.6 // that a noisy baseline hides
)

// route is the synchronous large copies of one process that compare with each other.
type route struct {
	gpu       int
	direction schema.Direction
	class     uint8 // 2^class bytes or more, less than twice as many
	memory    schema.HostMem

	open       open[moved]
	throughput history // bytes per ns
	bytes      history
	slow       streak
}

// moved is the copies of one window.
type moved struct{ calls, bytes, ns uint64 }

// Copy is a large copy between host and GPU.
type Copy struct {
	GPU       int // of the State
	Direction schema.Direction
	Memory    schema.HostMem
	Bytes, NS uint64
	Async     bool
}

// Copied adds a copy to the window of its entry.
func (s *State) Copied(index Index, c *Copy) {
	if n := s.At(index); n != nil {
		n.Copied += c.Bytes
		if c.Memory == schema.HostMemPageable {
			n.Pageable += c.Bytes
		}
	}
	if c.Async {
		return
	}
	r := s.route(c.GPU, c.Direction, uint8(bits.Len64(c.Bytes)-1), known(c.Memory))
	if r == nil {
		return
	}
	if m := r.open.at(index); m != nil {
		m.calls++
		m.bytes += c.Bytes
		m.ns += c.NS
	}
}

// known returns the class of host memory, unknown for one that this program does not know.
func known(m schema.HostMem) schema.HostMem {
	if m >= schema.NumHostMems {
		return schema.HostMemUnknown
	}
	return m
}

// route returns the route of a copy, nil if the process has too many.
func (s *State) route(gpu int, direction schema.Direction, class uint8, memory schema.HostMem) *route {
	key := routeKey(gpu, direction, class, memory)
	for i, k := range s.routeKeys {
		if k == key {
			return &s.routes[i]
		}
	}
	if len(s.routes) == maxRoutes {
		return nil
	}
	s.routeKeys = append(s.routeKeys, key)
	s.routes = append(s.routes, route{gpu: gpu, direction: direction, class: class, memory: memory})
	return &s.routes[len(s.routes)-1]
}

func routeKey(gpu int, direction schema.Direction, class uint8, memory schema.HostMem) uint32 {
	return uint32(gpu)<<24 | uint32(direction)<<16 | uint32(memory)<<8 | uint32(class)
}

func (*copyRegression) Kinds() []schema.Kind { return []schema.Kind{schema.KindCopy} }

func (r *copyRegression) Window(w *Window) {
	for i := range w.Process.State.routes {
		of := &w.Process.State.routes[i]
		switch m, known := of.open.take(w.index); {
		case known && m.calls >= minCopies:
			r.judge(w, of, &m)
		case of.slow.firing && w.Complete:
			r.idle(w, of)
		}
	}
}

// idle ends the alert of a route if it has fired for long: too few copies tell nothing.
func (r *copyRegression) idle(w *Window, of *route) {
	if of.slow.windows++; of.slow.windows >= maxFiring {
		of.slow = streak{}
		r.set.book.Clear(r.keyOf(w.Process, of), w.end(), "the process makes few such copies now")
	}
}

func (r *copyRegression) keyOf(p *Process, of *route) alert.Key {
	k := r.key(p, p.State.UUID(of.gpu))
	k.Detail = fmt.Sprintf("%s %d %d%s", of.direction, of.class, of.memory, p.State.unnamed(of.gpu))
	return k
}

func (r *copyRegression) judge(w *Window, of *route, m *moved) {
	rate := float64(m.bytes) / float64(max(m.ns, 1))
	median, deviation := of.throughput.median()
	usual, _ := of.bytes.median()
	drop := max(float64(r.Percent)/100, min(4*1.4826*deviation/max(median, 1e-9), maxDrop))
	odd := len(of.throughput.values) >= warmCopies && rate < (1-drop)*median && float64(m.bytes) <= 1.25*usual
	k := r.keyOf(w.Process, of)
	switch {
	case !w.Complete:
		if odd {
			r.suppress("gap")
		}
	case of.slow.firing:
		of.slow.windows++
		switch {
		case rate >= (1-float64(r.Percent)/200)*median:
			of.slow = streak{}
			r.set.book.Clear(k, w.end(), "the throughput is back to what it was")
		case of.slow.windows >= maxFiring:
			of.slow, of.throughput, of.bytes = streak{}, history{}, history{}
			r.set.book.Clear(k, w.end(), "it is the usual throughput now")
		}
	case odd:
		of.slow.odd(w, w.spans[schema.KindCopy].from)
		if of.slow.windows >= oddWindows {
			of.slow.firing = true
			r.fireSlow(w, of, k, rate, median)
		}
	default:
		of.slow = streak{}
		of.throughput.add(rate)
		of.bytes.add(float64(m.bytes))
	}
}

func (r *copyRegression) fireSlow(w *Window, of *route, k alert.Key, rate, median float64) {
	memory := "host"
	if of.memory == schema.HostMemPinned || of.memory == schema.HostMemPageable {
		memory = of.memory.String()
	}
	r.fire(w.Process, k, w.end(), w.spans[schema.KindCopy].to, func() alert.Alert {
		a := w.about(schema.KindCopy, of.slow.seqFrom)
		a.Severity, a.Since, a.GPU = alert.Warning, of.slow.began(w), k.GPU
		a.Value, a.Baseline = math.Round(rate*1e9), math.Round(median*1e9)
		a.Score = math.Round(100*rate/median) / 100
		a.Message = fmt.Sprintf("Copies %s of %s to %s by %s (pid %d) on %s reach %.3g GB/s with %s memory, %.0f %% "+
			"less than its usual %.3g GB/s. Check the link of the GPU, other programs that copy, and the placement of "+
			"the host memory.", of.direction, iec(float64(uint64(1)<<of.class)), iec(float64(uint64(2)<<of.class)),
			a.Comm, a.PID, a.Host, rate, memory, 100*(1-rate/median), median)
		return a
	})
}

func codeRoutes(c *snapshot.Codec, s *State) {
	snapshot.List(c, &s.routes, 11, func(r *route) {
		c.Below(&r.gpu, len(s.gpus))
		process.CodeWord(c, &r.direction, schema.ParseDirection)
		process.CodeWord(c, &r.memory, schema.ParseHostMem)
		snapshot.Uint(c, &r.class)
		if r.class > 63 {
			c.Fail("route of size class %d", r.class)
		}
		if c.Reading() {
			s.routeKeys = append(s.routeKeys, routeKey(r.gpu, r.direction, r.class, r.memory))
		}
		r.open.code(c, 3, func(m *moved) { snapshot.Uint(c, &m.calls, &m.bytes, &m.ns) })
		r.throughput.code(c)
		r.bytes.code(c)
		r.slow.code(c)
	})
	if len(s.routes) > maxRoutes {
		c.Fail("more than %d routes", maxRoutes)
	}
}
