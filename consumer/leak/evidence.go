package leak

import (
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Evidence of a process's numbers.
const (
	complete = "complete" // all of its calls were seen
	gap      = "gap"      // events of its lifetime were lost
	late     = "late"     // it ran before gputap was attached, or for longer
)

// evidence of a process: a gap counts when it may lie in the process's lifetime.
func evidence(p *proc) string {
	switch {
	case inGap(p):
		return gap
	case p.Late:
		return late
	}
	return complete
}

func inGap(p *proc) bool {
	h := p.State.boot
	return p.State.gap || (!p.Ended && h.gap > 0 && h.gap >= p.ID.Start)
}

// Lost tells that batches of a host never arrived. Processes that ran then carry the evidence
// "gap" from now on. It is called by the goroutine that calls Apply.
func (t *Tracker) Lost(cluster, hostname, boot string, batches uint64) {
	if batches == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hostOf(snapshot.HostID{Cluster: cluster, Host: hostname}).bootOf(boot)
	h.markGap(h.last)
	h.openGap = true
}

// mark says that events were lost up to at.
func (h *boot) markGap(at schema.KTime) { h.gap = max(h.gap, at) }
