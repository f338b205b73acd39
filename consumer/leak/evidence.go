package leak

import (
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Evidence of a process's numbers.
const (
	complete = "complete" // all its calls were seen
	gap      = "gap"      // events were lost during its lifetime
	late     = "late"     // it ran before gputap attached
)

// evidence returns the evidence of a process. A gap counts if it may lie within the process's lifetime.
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

// Lost reports that batches of a host never arrived. Processes that ran then have the evidence "gap" from now on. The
// goroutine that calls Apply calls Lost.
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

// markGap records that events may have been lost up to time at.
func (h *boot) markGap(at schema.KTime) { h.gap = max(h.gap, at) }
