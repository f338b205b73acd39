package leak

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// host is one machine through all its boots.
type host struct {
	id     snapshot.HostID
	boots  map[string]*boot
	sizes  sizes
	live   int // entries in the lists of sizes
	totals *quality
}

// boot is one boot of a host, with its loss of events.
type boot struct {
	*host
	bootID  string
	offset  int64         // wall clock minus KTime, ns
	run     uint64        // latest producer run
	lost    uint64        // memory events lost in that run
	last    schema.KTime  // time of the latest event
	gap     schema.KTime  // latest time at which events may have been lost; 0: none
	openGap bool          // the gap extends to the next memory batch with events
	seen    bool          // a batch of this boot was applied
	windows trend.Windows // of memory events
	older   bool          // a process ran before the producer, and runs; not saved

	cards   map[string]*card // by UUID
	exports exports
}

// contradiction is a kind of event that contradicts the state.
type contradiction int

const (
	unmatchedFree   contradiction = iota // a free, unmap or close of memory whose allocation was not seen
	reallocOverLive                      // an allocation or mapping over live memory
	lateFree                             // a free of a life that such an allocation has already ended
	unknownContext                       // a context call whose effect on memory is unknown
	numContradictions
)

// quality counts the contradictions of one host, or of all.
type quality [numContradictions]uint64

// Add adds more.
func (q *quality) Add(more *quality) {
	for what, n := range more {
		q[what] += n
	}
}

// Code passes over the counts.
func (q *quality) Code(c *snapshot.Codec) {
	snapshot.Uint(c, &q[unmatchedFree], &q[reallocOverLive], &q[lateFree], &q[unknownContext])
}

// count counts an event of a process.
func (t *Tracker) count(p *proc, what contradiction) {
	t.quality[what]++
	p.State.boot.totals[what]++
	if what == unmatchedFree {
		p.State.unmatched = max(p.State.unmatched, t.in.event.Time)
	}
	if t.cfg.OnContradiction != nil {
		var one quality
		one[what] = 1
		t.cfg.OnContradiction(&p.Info, one.counters())
	}
}

func (q *quality) counters() Counters {
	return Counters{UnmatchedFrees: q[unmatchedFree], ReallocOverLive: q[reallocOverLive], LateFrees: q[lateFree],
		UnknownContexts: q[unknownContext]}
}

// Forget removes a host that is gone: its processes, boots and workloads. Its live memory counts neither as freed nor
// as unfreed, because nobody saw its end; only memory that was counted as other becomes unfreed. If the host returns,
// it is a new host. The goroutine that calls Apply calls Forget.
func (t *Tracker) Forget(cluster, hostname string) {
	t.mu.Lock()
	defer t.unlock()
	if m := t.hosts[snapshot.HostID{Cluster: cluster, Host: hostname}]; m != nil {
		t.forget(m)
	}
}

func (t *Tracker) forget(m *host) {
	t.book.Forget(m.id)
	t.table.Forget(m.id)
	t.workloads.removeHost(m.id)
	t.totals.Forget(m.id)
	delete(t.hosts, m.id)
}

// wall converts the boot's KTime to wall time. 0 stands for never.
func (h *boot) wall(at schema.KTime) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(at)+h.offset).UTC()
}

// bootOf returns a boot of a host, adding both if they are new.
func (t *Tracker) bootOf(cluster, hostname, bootID string) *boot {
	id := snapshot.HostID{Cluster: cluster, Host: hostname}
	m := t.hosts[id]
	if m == nil {
		m = &host{id: id, boots: map[string]*boot{}, totals: t.totals.At(process.Workload{HostID: id})}
		t.hosts[id] = m
	}
	h := m.boots[bootID]
	if h == nil {
		if len(m.boots) >= maxBoots {
			oldest := m.oldest()
			t.endBoots(m, func(b *boot) bool { return b == oldest })
		}
		h = &boot{host: m, bootID: bootID}
		m.boots[bootID] = h
	}
	return h
}

// maxBoots limits a host whose boots come in no order, such as one of a broken clock.
const maxBoots = 16

// oldest returns the boot that began first; of several, the first by name.
func (m *host) oldest() *boot {
	return slices.MinFunc(slices.Collect(maps.Values(m.boots)), func(a, b *boot) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.bootID, b.bootID))
	})
}

// observe updates the batch's boot from the header of a batch of any kind, and returns the boot.
func (t *Tracker) observe(b *schema.Batch) *boot {
	h := t.bootOf(b.Cluster, b.Host, b.BootID)
	switch {
	case !h.seen:
		h.seen = true
		t.endOlderBoots(h, math.MinInt64, b.ClockOffset)
	case b.ClockOffset > h.offset && len(h.boots) > 1: // the host corrected its clock after the boot was first seen
		t.endOlderBoots(h, h.offset, b.ClockOffset)
	}
	h.offset = b.ClockOffset
	if b.Run < h.run {
		return h // late batch of an earlier run: the restart already made a gap
	}
	end := max(h.last, b.Last)
	restarted := b.Run > h.run && h.run != 0
	if restarted { // a process that begins in the new run is seen from its first call on, or is late
		h.markGap(max(h.last, schema.KTime(b.Run)))
		h.lost = 0
	}
	lost := memoryLost(b)
	h.windows.Observe(schema.KTime(t.cfg.Window), &b.Header, schema.KindMemory, lost > h.lost, restarted)
	if lost > h.lost {
		h.markGap(end)
		h.openGap = h.openGap || b.Events == 0 // a heartbeat does not say when the gap ends
	}
	if h.openGap && b.Kind == schema.KindMemory && b.Events > 0 {
		h.markGap(b.First)
		h.openGap = false
	}
	h.run, h.lost, h.last = b.Run, max(lost, h.lost), end
	return h
}

// memoryLost sums the loss causes that affect memory events. The bulk rings and the tensor ring hold none, and a
// missing seq proves exactly which batches the spool dropped.
func memoryLost(b *schema.Batch) uint64 {
	return b.TotalLost() - b.Lost[schema.LossBulkRing] - b.Lost[schema.LossTensorRing] - b.Lost[schema.LossSpool]
}

// endOlderBoots ends the processes of boots whose wall time lies in [from, booted): the host has rebooted since. The
// clock offset approximates the wall time of a boot closely enough to order boots.
func (t *Tracker) endOlderBoots(h *boot, from, booted int64) {
	t.endBoots(h.host, func(old *boot) bool { return old != h && old.offset >= from && old.offset < booted })
}

// endBoots ends the processes of boots, and removes the boots.
func (t *Tracker) endBoots(m *host, over func(*boot) bool) {
	// in order of first sight: the order of releases decides which workload is evicted first
	for _, p := range t.table.Of(m.id) {
		if at := p.State.boot; m.boots[at.bootID] == at && over(at) && !p.Ended {
			at.markGap(at.last) // neither its end nor its last events were seen
			t.exit(p)
		}
	}
	maps.DeleteFunc(m.boots, func(_ string, old *boot) bool { return over(old) })
}

// endMissing ends processes that began before the producer's run, made no call in it and are not in the producer's
// list of running processes. Their ends were not seen.
func (t *Tracker) endMissing(b *schema.Batch, h *boot) {
	if b.Run != h.run {
		return // late batch of an earlier run
	}
	there := slices.Sorted(slices.Values(b.Older))
	h.older = len(there) > 0
	for _, p := range t.table.Of(h.id) {
		if p.State.boot != h || p.Ended || uint64(p.ID.Start) >= b.Run || p.State.run >= b.Run {
			continue
		}
		if _, isThere := slices.BinarySearch(there, uint64(p.ID.PID)); !isThere {
			t.exit(p)
		}
	}
}

// HasOlder reports whether processes run that ran before a producer, such as a server that allocated all its memory
// then. Programs that never call the driver may be among them. Those in a restored state are not.
func (t *Tracker) HasOlder() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.hosts {
		for _, h := range m.boots {
			if h.older {
				return true
			}
		}
	}
	return false
}

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
	defer t.unlock()
	h := t.bootOf(cluster, hostname, boot)
	h.markGap(h.last)
	h.openGap = true
	h.windows.Lose()
}

// markGap records that events may have been lost up to this time.
func (h *boot) markGap(at schema.KTime) { h.gap = max(h.gap, at) }
