package leak

import (
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/trend"
)

// Tensors is the verdict of another fold about the tensors of a process on one GPU. They lie in memory that an
// allocator keeps, so they may leak while the memory does not grow.
type Tensors struct {
	State        trend.State
	Since        time.Time // growing and suspect: when growth began
	PerHour      uint64    // bytes
	Growth       uint64    // bytes since Since
	SuspectBytes uint64    // in state suspect: of tensors that are still live
	Cached       uint64    // bytes that the allocator can give to more tensors
	Why          string    // one sentence, without a full stop
	Evidence     alert.Evidence
	Groups       []Group // growing and suspect: the largest that grow steadily
}

// tensors returns the verdict about the tensors of a process on one GPU.
func (t *Tracker) tensors(p *proc, d *device) (v Tensors, known bool) {
	if t.cfg.Tensors == nil {
		return v, false
	}
	return t.cfg.Tensors(p.ID, d.gpu)
}

// graver reports whether a state says more about a leak than another.
func graver(a, b trend.State) bool { return a.Grows() && (!b.Grows() || a > b) }

// stateOf returns the state of the memory of a device or of the tensors in it, whichever is graver.
func (t *Tracker) stateOf(p *proc, d *device) trend.State {
	if v, known := t.tensors(p, d); known && graver(v.State, d.verdict.State) {
		return v.State
	}
	return d.verdict.State
}

// join adds the verdict about the tensors to the one about the memory.
func (v *Verdict) join(q *Tensors) {
	switch {
	case graver(q.State, v.State):
		v.State, v.Since, v.Why, v.Evidence = q.State, q.Since, q.Why, q.Evidence
		v.SuspectBytes, v.SlopeBytesPerHour, v.GrowthBytes = q.SuspectBytes, q.PerHour, q.Growth
		v.Groups = q.Groups
	case v.State.Grows():
		v.Why += "; " + q.Why
	}
}
