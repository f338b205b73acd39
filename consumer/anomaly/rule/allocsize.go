package rule

import (
	"fmt"
	"math"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// allocSize finds one allocation that dwarfs everything that its process did before.
//
// An allocation is odd if it is at least MinBytes, Factor times the largest one before, and as large as all live large
// allocations together. Programs grow in steps that look like that at first: a server loads small weights and then a
// large cache, an allocator asks for larger and larger segments. So an odd allocation is held. It is no anomaly if the
// process allocates another of half its size or more, or grows by half its size in smaller ones, within Hold. An
// allocation of half a GPU or more is a framework's pool.
//
// The largest allocation before is the baseline, because the median means little where sizes vary. Ten allocations
// before it are enough, or 30 windows in which the process launched kernels and made no large allocation: a program
// with a caching allocator makes few. A process that begins with its largest allocation never exceeds it, and the
// allocations that follow tell a process that grows step by step.
type allocSize struct {
	base
	AllocSize
	warmup time.Duration
}

// unseenAllocations must precede an odd allocation if earlier ones were not seen: the process ran before gputap did, or
// events were lost.
const unseenAllocations = 64

// sizes is the allocation sizes of one process.
type sizes struct {
	largest uint64 // of those that are no anomaly
	gaps    uint64 // Host.gaps when the count began
	skipped uint64 // State.Allocations when the count began
	quiet   uint64 // windows with launches since the last large allocation
	held    *held
	odd     uint64 // Key of the allocation whose alert fires; 0: none
	oddGPU  string
}

// held is an odd allocation that waits for what follows.
type held struct {
	key, bytes uint64
	at         schema.KTime
	live       uint64 // of the process, with it
	freed      bool
	alert      alert.Alert
}

// Kinds returns the launches, which tell that a process worked without large allocations.
func (*allocSize) Kinds() []schema.Kind { return []schema.Kind{schema.KindLaunch} }

func (r *allocSize) Window(w *Window) {
	if s := &w.Process.State.sizes; w.Complete && w.Counts.Launches > 0 {
		s.quiet++
	}
}

func (r *allocSize) Event(e *Event) {
	s := &e.Process.State.sizes
	switch {
	case e.OnHost:
	case e.What == Freed:
		r.freed(e, s)
	case e.What == Ended && s.held != nil:
		r.decide(e.Process, s, e.Batch.Wall(e.Time))
	case e.What == Allocated && e.Bytes >= LargeBytes:
		r.allocated(e, s)
	}
}

func (r *allocSize) freed(e *Event, s *sizes) {
	if s.held != nil && s.held.key == e.Key {
		s.held.freed = true
	}
	if s.odd == e.Key && e.Key != 0 {
		r.set.book.Clear(r.key(e.Process, s.oddGPU), e.Batch.Wall(e.Time), "the memory was freed")
		s.odd = 0
	}
}

func (r *allocSize) allocated(e *Event, s *sizes) {
	state := &e.Process.State
	if s.gaps != e.Host.gaps { // larger allocations may be among the events that were lost
		s.gaps, s.skipped = e.Host.gaps, state.Allocations
		r.drop(s, "gap")
	}
	if h := s.held; h != nil && (e.Bytes >= h.bytes/2 || state.live() >= h.live+h.bytes/2) {
		r.drop(s, "followed")
	}
	reason := r.ordinary(e, s)
	s.quiet = 0
	if reason != "" {
		s.largest = max(s.largest, e.Bytes)
		if reason != "small" {
			r.suppress(reason)
		}
		return
	}
	if s.held != nil { // far smaller than this one
		s.largest = max(s.largest, s.held.bytes)
	}
	s.held = &held{e.Key, e.Bytes, e.returned(), state.live(), false, r.describe(e, s)}
}

// ordinary returns why an allocation is no finding; "" if it is odd.
func (r *allocSize) ordinary(e *Event, s *sizes) string {
	state := &e.Process.State
	need := uint64(r.Allocations)
	switch {
	case state.late || s.skipped > 0:
		need = unseenAllocations
	case s.quiet >= warmWindows:
		need = 0
	}
	before := max(s.largest, LargeBytes)
	switch g := &state.gpus[e.GPU]; {
	case e.Bytes < r.MinBytes || e.Bytes/uint64(r.Factor) < before || state.Allocations-s.skipped <= need:
		return "small"
	case r.warmup > 0 && elapsed(e.Process.ID.Start, e.returned()) < r.warmup:
		return "warmup"
	case g.size > 0 && e.Bytes >= g.size/2:
		return "preallocation"
	}
	before = state.live()
	if _, counted := state.large[e.Key]; counted {
		before -= e.Bytes
	}
	if e.Bytes < before {
		return "min_effect"
	}
	return ""
}

// drop ends the wait: the held allocation is ordinary.
func (r *allocSize) drop(s *sizes, reason string) {
	if s.held != nil {
		s.largest = max(s.largest, s.held.bytes)
		s.held = nil
		r.suppress(reason)
	}
}

func (r *allocSize) Tick(t *Tick) {
	for _, p := range t.Processes {
		s := &p.State.sizes
		if s.held == nil || elapsed(s.held.at, t.Through) < r.Hold {
			continue
		}
		if s.gaps != t.Host.gaps {
			r.drop(s, "gap")
			continue
		}
		r.decide(p, s, t.now())
	}
}

// decide raises the alert: nothing like the held allocation followed.
func (r *allocSize) decide(p *Process, s *sizes, at time.Time) {
	h := s.held
	s.largest, s.held = max(s.largest, h.bytes), nil
	k := r.key(p, h.alert.GPU)
	if r.fire(p, k, at, h.alert.Evidence.Seq, func() alert.Alert { return h.alert }) {
		if s.odd != 0 && s.oddGPU != k.GPU {
			r.set.book.Clear(r.key(p, s.oddGPU), at, "a larger allocation followed")
		}
		s.odd, s.oddGPU = h.key, k.GPU
	}
	if h.freed {
		r.set.book.Clear(k, at, "the memory was freed")
		s.odd = 0
	}
}

func (r *allocSize) describe(e *Event, s *sizes) alert.Alert {
	before := max(s.largest, LargeBytes)
	a := e.about()
	a.Severity, a.Baseline = alert.Warning, float64(before)
	a.Score = math.Round(a.Value/a.Baseline*100) / 100
	a.Message = fmt.Sprintf("%s (pid %d) on %s allocated %s at %s in thread %d (%s): %.0f times the largest of its %d "+
		"allocations before, which was %s, and nothing of that size followed. Check what that thread loads or "+
		"computes at that time.",
		a.Comm, a.PID, a.Host, iec(a.Value), a.Address, a.TID, a.ThreadComm, a.Value/a.Baseline,
		e.Process.State.Allocations-s.skipped-1, iec(a.Baseline))
	return a
}

// elapsed returns to minus from, and 0 if from is later: events of two threads may be slightly out of order.
func elapsed(from, to schema.KTime) time.Duration {
	if to <= from {
		return 0
	}
	return time.Duration(to - from)
}

func (s *sizes) code(c *snapshot.Codec, id snapshot.HostID) {
	snapshot.Uint(c, &s.largest, &s.gaps, &s.skipped, &s.quiet, &s.odd)
	c.String(&s.oddGPU)
	waits := s.held != nil
	if c.Bool(&waits); !waits {
		return
	}
	if c.Reading() {
		s.held = &held{}
	}
	h := s.held
	snapshot.Uint(c, &h.key, &h.bytes, &h.live)
	snapshot.Uint(c, &h.at)
	c.Bool(&h.freed)
	h.alert.Code(c, id)
}
