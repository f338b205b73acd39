package anomaly

import (
	"fmt"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

const outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

// cooldown is the start of a cooldown and the alert that repetitions count for.
type cooldown struct {
	since schema.KTime
	alert uint64 // its number in the history, among the alerts of the host
}

// covers reports whether now lies within the cooldown. The zero cooldown covers nothing.
func (c *cooldown) covers(now schema.KTime, length time.Duration) bool {
	return c.since != 0 && elapsed(c.since, now) < length
}

// elapsed returns to minus from, and 0 if from is later: events of two threads may be slightly out of order.
func elapsed(from, to schema.KTime) time.Duration {
	if to <= from {
		return 0
	}
	return time.Duration(to - from)
}

// failed is the cooldown of one call in one process.
type failed struct {
	symbol string
	cooldown
}

// maxFailed limits the calls watched per process. Programs use a handful.
const maxFailed = 32

// oom judges an allocation that may have returned CUDA_ERROR_OUT_OF_MEMORY.
func (d *Detector) oom(e *event) {
	if e.Result != outOfMemory {
		return
	}
	s, now := &e.process.State, e.returned()
	symbol := e.batch.Calls[e.Call].Symbol
	i := slices.IndexFunc(s.failed, func(f failed) bool { return f.symbol == symbol })
	switch {
	case i < 0 && len(s.failed) == maxFailed:
		d.suppress(RuleOOM, "limit")
		return
	case i < 0:
		i = len(s.failed)
		s.failed = append(s.failed, failed{symbol: symbol})
	case s.failed[i].covers(now, d.cfg.OOMCooldown):
		d.history.repeat(s.failed[i].alert, e.host())
		d.suppress(RuleOOM, "cooldown")
		return
	}
	s.failed[i].cooldown = cooldown{now, d.raise(d.oomAlert(e))}
}

func (d *Detector) oomAlert(e *event) Alert {
	a := d.alert(e, RuleOOM, Critical)
	where, remedy := "GPU",
		"See the report of gputap-leak for the processes that hold the GPU; free memory there or request less."
	if e.batch.Calls[e.Call].Class.OnHost() {
		where, remedy = "pinned host", "Check the host's free memory and locked memory, then request less."
	}
	a.Message = fmt.Sprintf("%s (pid %d) on %s ran out of %s memory: %s requested with %s in thread %d (%s). %s",
		a.Comm, a.PID, a.Host, where, iec(a.Value), a.Symbol, a.TID, a.ThreadComm, remedy)
	return a
}
