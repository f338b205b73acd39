package tensor

import (
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// host is the boots of one host by boot id: the latest, and those whose batches came after it.
type host map[string]*boot

// maxBoots limits a host.
const maxBoots = 16

type boot struct {
	offset int64  // wall clock minus KTime, ns: orders boots
	run    uint64 // latest producer run
	lost   uint64 // tensor events lost in that run

	windows trend.Windows // of tensor events
}

func hostOf(h *schema.Header) snapshot.HostID {
	return snapshot.HostID{Cluster: h.Cluster, Host: h.Host}
}

// observe updates the batch's boot from the header of a batch of any kind.
func (f *Fold) observe(b *schema.Batch) {
	id := hostOf(&b.Header)
	h := f.hosts[id]
	if h == nil {
		h = host{}
		f.hosts[id] = h
	}
	t := h[b.BootID]
	if t == nil {
		if len(h) >= maxBoots {
			delete(h, h.oldest())
		}
		t = &boot{run: b.Run, lost: lost(b)}
		h[b.BootID] = t
		f.endOlderBoots(id, h, b)
	}
	t.offset = b.ClockOffset
	switch {
	case b.Run < t.run: // a late batch of an earlier run
		return
	case b.Run > t.run, lost(b) > t.lost:
		f.markGap(id, b.BootID)
	}
	restarted := b.Run > t.run
	if restarted {
		t.run, t.lost = b.Run, 0
	}
	t.windows.Observe(schema.KTime(f.window), &b.Header, schema.KindTensor, lost(b) > t.lost, restarted)
	t.lost = max(t.lost, lost(b))
}

func (h host) oldest() (id string) {
	for _, boot := range slices.Sorted(maps.Keys(h)) {
		if id == "" || h[boot].offset < h[id].offset {
			id = boot
		}
	}
	return id
}

// lost sums the causes of loss that affect tensors and the ends of processes. The other rings hold neither, and missing
// batches are reported to Lost.
func lost(b *schema.Batch) (events uint64) {
	for _, cause := range [...]schema.Loss{
		schema.LossTensorRing, schema.LossControlRing, schema.LossState, schema.LossOther,
	} {
		events += b.Lost[cause]
	}
	return events
}

// markGap marks the running processes of a boot.
func (f *Fold) markGap(id snapshot.HostID, bootID string) {
	for _, p := range f.processes.Of(id) {
		if p.ID.BootID == bootID && !p.Ended {
			p.State.gap = true
		}
	}
}

// endOlderBoots ends the processes of boots that are older than a batch's: the host has rebooted since.
func (f *Fold) endOlderBoots(id snapshot.HostID, h host, b *schema.Batch) {
	older := func(bootID string) bool {
		return bootID != b.BootID && h[bootID] != nil && h[bootID].offset < b.ClockOffset
	}
	for _, p := range f.processes.Of(id) {
		if older(p.ID.BootID) {
			p.State.gap = p.State.gap || !p.Ended // neither its end nor its last reports were seen
			end(p, p.State.latest())
			p.State.release() // no tick names its boot any more
		}
	}
	maps.DeleteFunc(h, func(bootID string, _ *boot) bool { return older(bootID) })
}

// latest is the time of the last report.
func (s *state) latest() (at schema.KTime) {
	for _, d := range s.devices {
		at = max(at, d.last)
	}
	return at
}

// endMissing ends processes that began before the producer's run, made no report in it and are not in the producer's
// list of running processes. Their ends were not seen.
func (f *Fold) endMissing(b *schema.Batch) {
	id := hostOf(&b.Header)
	if b.Run != f.hosts[id][b.BootID].run {
		return // a late batch of an earlier run
	}
	there := slices.Sorted(slices.Values(b.Older))
	for _, p := range f.processes.Of(id) {
		if p.ID.BootID != b.BootID || p.Ended || uint64(p.ID.Start) >= b.Run || p.State.run >= b.Run {
			continue
		}
		if _, isThere := slices.BinarySearch(there, uint64(p.ID.PID)); !isThere {
			end(p, p.State.latest())
		}
	}
}

// Lost reports that batches of a host never arrived. Processes that ran then have the evidence "gap" from now on.
func (f *Fold) Lost(cluster, hostname, bootID string, batches uint64) {
	if batches == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: hostname}
	f.markGap(id, bootID)
	if t := f.hosts[id][bootID]; t != nil {
		t.windows.Lose()
	}
}

// Evidence of a process's blocks.
const (
	complete = "complete" // all reports were seen
	gap      = "gap"      // reports may have been lost
	late     = "late"     // blocks were handed out before gputap attached
)

func evidence(p *process.Entry[state]) string {
	switch {
	case p.State.gap:
		return gap
	case p.State.late():
		return late
	}
	return complete
}
