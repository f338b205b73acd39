package leak

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// machine is one host through all its boots.
type machine struct {
	id     snapshot.HostID
	boots  map[string]*host
	sizes  sizes
	totals *quality
}

// host is what one boot of one host said about its own evidence.
type host struct {
	*machine
	boot   string
	offset int64        // wall clock minus KTime, ns
	run    uint64       // the producer's run that is followed
	lost   uint64       // of that run, as far as memory goes
	last   schema.KTime // latest event
	gap    schema.KTime // the latest time at which events may have been lost; 0: none
	hole   bool         // what was lost reaches to the next batch with events
	seen   bool         // a batch came

	cards   map[string]*card // by UUID
	exports exports
}

// quality counts, for one machine, what says how good the picture is.
type quality struct {
	unmatchedFrees  uint64
	reallocOverLive uint64
	lateFrees       uint64
	unknownContexts uint64
}

// Lost tells that batches of a host never arrived. Processes that ran then carry the evidence
// "gap" from now on. It is called by the goroutine that calls Apply.
func (t *Tracker) Lost(cluster, hostname, boot string, batches uint64) {
	if batches == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.machineOf(snapshot.HostID{Cluster: cluster, Host: hostname}).hostOf(boot)
	h.mark(h.last)
	h.hole = true
}

// Forget lets go of a host that is gone: its processes, its boots and its workloads. Nobody saw what became of what was live
// there, so nothing of it counts as freed or unfreed; it leaves the page with all that the workloads allocated. Only where its
// processes count as other it is unfreed. Should the host come back, it is a new one. It is called by the goroutine that calls Apply.
func (t *Tracker) Forget(cluster, hostname string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[snapshot.HostID{Cluster: cluster, Host: hostname}]
	if m == nil {
		return
	}
	t.table.Forget(m.id)
	t.workloads.forget(m.id)
	if m.totals != t.otherQuality {
		t.qualities--
	}
	delete(t.machines, m.id)
}

// wall turns the host's KTime into wall time.
func (h *host) wall(at schema.KTime) time.Time { return time.Unix(0, int64(at)+h.offset).UTC() }

func (t *Tracker) machineOf(id snapshot.HostID) *machine {
	m := t.machines[id]
	if m == nil {
		m = &machine{id: id, boots: map[string]*host{}}
		if t.qualities < maxSeries-1 {
			t.qualities++
			m.totals = &quality{}
		} else {
			m.totals = t.otherQualities()
		}
		t.machines[id] = m
	}
	return m
}

func (t *Tracker) otherQualities() *quality {
	if t.otherQuality == nil {
		t.otherQuality = &quality{}
	}
	return t.otherQuality
}

func (m *machine) hostOf(boot string) *host {
	h := m.boots[boot]
	if h == nil {
		h = &host{machine: m, boot: boot}
		m.boots[boot] = h
	}
	return h
}

// mark says that events were lost up to at.
func (h *host) mark(at schema.KTime) { h.gap = max(h.gap, at) }

// observe notes what a batch of any kind says about its host.
func (t *Tracker) observe(b *schema.Batch) *host {
	h := t.machineOf(snapshot.HostID{Cluster: b.Cluster, Host: b.Host}).hostOf(b.BootID)
	switch {
	case !h.seen:
		h.seen = true
		t.endOlderBoots(h, math.MinInt64, b.ClockOffset)
	case b.ClockOffset > h.offset && len(h.boots) > 1: // its clock was behind when it was first heard of
		t.endOlderBoots(h, h.offset, b.ClockOffset)
	}
	h.offset = b.ClockOffset
	if b.Run < h.run {
		return h // a straggler: the change of run was a gap already
	}
	end := max(h.last, b.Last)
	lost := memoryLost(b)
	if lost > h.lost || (b.Run > h.run && h.run != 0) {
		h.mark(end)
		h.hole = h.hole || b.Events == 0 // a heartbeat does not say until when
	}
	if h.hole && b.Kind == schema.KindMemory && b.Events > 0 {
		h.mark(b.First)
		h.hole = false
	}
	h.run, h.lost, h.last = b.Run, max(lost, h.lostIn(b.Run)), end
	return h
}

func (h *host) lostIn(run uint64) uint64 {
	if run == h.run {
		return h.lost
	}
	return 0
}

// memoryLost sums the causes that can take a memory event. The bulk rings hold none, and a batch
// that the spool dropped is known exactly by its missing seq.
func memoryLost(b *schema.Batch) uint64 {
	return b.TotalLost() - b.Lost[schema.LossBulkRing] - b.Lost[schema.LossSpool]
}

// endOlderBoots ends what ran on a host before it was booted anew: in the boots that it is found to be younger than, now
// that it is said to have been booted then, and no more at from. The clock offset is the wall time of the boot, near enough
// to order boots.
func (t *Tracker) endOlderBoots(h *host, from, booted int64) {
	older := func(old *host) bool { return old != h && old.offset >= from && old.offset < booted }
	some := false
	for _, old := range h.boots {
		some = some || older(old)
	}
	if !some {
		return
	}
	for _, p := range t.table.Of(h.id) { // in their order: that of releases tells who makes room first
		if at := p.State.host; h.boots[at.boot] == at && older(at) && !p.Ended {
			at.mark(at.last) // nobody saw its end, nor what it did before
			t.exit(p)
		}
	}
	maps.DeleteFunc(h.boots, func(_ string, old *host) bool { return older(old) })
}

// endUntold ends what began before the producer's run, made no call in it and is not there any more: nobody saw its end.
func (t *Tracker) endUntold(b *schema.Batch, h *host) {
	if b.Run != h.run {
		return // a straggler
	}
	there := slices.Sorted(slices.Values(b.Older))
	for _, p := range t.table.Of(h.id) {
		if p.State.host != h || p.Ended || uint64(p.ID.Start) >= b.Run || p.State.run >= b.Run {
			continue
		}
		if _, isThere := slices.BinarySearch(there, uint64(p.ID.PID)); !isThere {
			t.exit(p)
		}
	}
}

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
	h := p.State.host
	return p.State.gap || (!p.Ended && h.gap > 0 && h.gap >= p.ID.Start)
}
