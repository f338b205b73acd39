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
type host struct {
	id     snapshot.HostID
	boots  map[string]*boot
	sizes  sizes
	totals *quality
}

// host is what one boot of one host said about its own evidence.
type boot struct {
	*host
	bootID  string
	offset  int64        // wall clock minus KTime, ns
	run     uint64       // the producer's run that is followed
	lost    uint64       // of that run, as far as memory goes
	last    schema.KTime // latest event
	gap     schema.KTime // the latest time at which events may have been lost; 0: none
	openGap bool         // what was lost reaches to the next batch with events
	seen    bool         // a batch came

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

// Forget lets go of a host that is gone: its processes, its boots and its workloads. Nobody saw what became of what was live
// there, so nothing of it counts as freed or unfreed; it leaves the page with all that the workloads allocated. Only where its
// processes count as other it is unfreed. Should the host come back, it is a new one. It is called by the goroutine that calls Apply.
func (t *Tracker) Forget(cluster, hostname string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.hosts[snapshot.HostID{Cluster: cluster, Host: hostname}]
	if m == nil {
		return
	}
	t.table.Forget(m.id)
	t.workloads.removeHost(m.id)
	if m.totals != t.otherQuality {
		t.qualities--
	}
	delete(t.hosts, m.id)
}

// wall turns the host's KTime into wall time.
func (h *boot) wall(at schema.KTime) time.Time { return time.Unix(0, int64(at)+h.offset).UTC() }

func (t *Tracker) hostOf(id snapshot.HostID) *host {
	m := t.hosts[id]
	if m == nil {
		m = &host{id: id, boots: map[string]*boot{}}
		if t.qualities < maxSeries-1 {
			t.qualities++
			m.totals = &quality{}
		} else {
			m.totals = t.otherQualities()
		}
		t.hosts[id] = m
	}
	return m
}

func (t *Tracker) otherQualities() *quality {
	if t.otherQuality == nil {
		t.otherQuality = &quality{}
	}
	return t.otherQuality
}

func (m *host) bootOf(id string) *boot {
	h := m.boots[id]
	if h == nil {
		h = &boot{host: m, bootID: id}
		m.boots[id] = h
	}
	return h
}

// observe notes what a batch of any kind says about its host.
func (t *Tracker) observe(b *schema.Batch) *boot {
	h := t.hostOf(snapshot.HostID{Cluster: b.Cluster, Host: b.Host}).bootOf(b.BootID)
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
		h.markGap(end)
		h.openGap = h.openGap || b.Events == 0 // a heartbeat does not say until when
	}
	if h.openGap && b.Kind == schema.KindMemory && b.Events > 0 {
		h.markGap(b.First)
		h.openGap = false
	}
	h.run, h.lost, h.last = b.Run, max(lost, h.lostIn(b.Run)), end
	return h
}

func (h *boot) lostIn(run uint64) uint64 {
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
func (t *Tracker) endOlderBoots(h *boot, from, booted int64) {
	older := func(old *boot) bool { return old != h && old.offset >= from && old.offset < booted }
	some := false
	for _, old := range h.boots {
		some = some || older(old)
	}
	if !some {
		return
	}
	for _, p := range t.table.Of(h.id) { // in their order: that of releases tells who makes room first
		if at := p.State.boot; h.boots[at.bootID] == at && older(at) && !p.Ended {
			at.markGap(at.last) // nobody saw its end, nor what it did before
			t.exit(p)
		}
	}
	maps.DeleteFunc(h.boots, func(_ string, old *boot) bool { return older(old) })
}

// endUntold ends what began before the producer's run, made no call in it and is not there any more: nobody saw its end.
func (t *Tracker) endMissing(b *schema.Batch, h *boot) {
	if b.Run != h.run {
		return // a straggler
	}
	there := slices.Sorted(slices.Values(b.Older))
	for _, p := range t.table.Of(h.id) {
		if p.State.boot != h || p.Ended || uint64(p.ID.Start) >= b.Run || p.State.run >= b.Run {
			continue
		}
		if _, isThere := slices.BinarySearch(there, uint64(p.ID.PID)); !isThere {
			t.exit(p)
		}
	}
}
