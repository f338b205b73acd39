package consumer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const (
	maxHosts  = 10_000         // of one shard
	maxSilent = 24 * time.Hour // then a host is forgotten
)

type hostID = snapshot.HostID

// hostState is the state of one host in a Reader.
type hostState struct {
	heard     time.Time // when NATS stored its last batch
	stored    time.Time // heard plus the time since in which NATS stored no batch of any host
	lastEvent time.Time // wall time of its last event
	gaps      uint64
	missing   uint64
	job       bool // a job, in whose place summaries of ranks stand
}

// hostTable holds at most maxHosts. It evicts the host that has been silent for longest; of several, the first by name.
type hostTable map[hostID]*hostState

// record records a batch and returns the hosts that were evicted for a new one. There may be several where shards were
// merged.
func (h hostTable) record(b *schema.Header, stored time.Time, reason string, absent uint64) (evicted []hostID) {
	id := hostID{Cluster: b.Cluster, Host: b.Host}
	s := h[id]
	if s == nil {
		for len(h) >= maxHosts {
			evicted = append(evicted, h.evictOldest())
		}
		s = &hostState{}
		h[id] = s
	}
	s.heard, s.stored, s.job = stored, stored, b.Kind == schema.KindRank
	if absent > 0 && reason == "" {
		s.gaps++
		s.missing += absent
	}
	if last := b.Wall(b.Last); b.Events > 0 && last.After(s.lastEvent) {
		s.lastEvent = last
	}
	return evicted
}

func (h hostTable) evictOldest() (oldest hostID) {
	var first *hostState
	for id, s := range h {
		if first == nil || cmp.Or(s.stored.Compare(first.stored), id.Compare(oldest)) < 0 {
			oldest, first = id, s
		}
	}
	delete(h, oldest)
	return oldest
}

// forgetSilent removes hosts that were silent for maxSilent before now, and returns them in order. An hour or more in
// which NATS stored no batch of any host counts as an outage, not as silence.
func (h hostTable) forgetSilent(now time.Time) (forgotten []hostID) {
	var newest time.Time
	for _, s := range h {
		if s.stored.After(newest) {
			newest = s.stored
		}
	}
	outage := now.Sub(newest)
	for id, s := range h {
		if outage > time.Hour {
			s.stored = s.stored.Add(outage)
		}
		if now.Sub(s.stored) > maxSilent {
			delete(h, id)
			forgotten = append(forgotten, id)
		}
	}
	slices.SortFunc(forgotten, hostID.Compare)
	return forgotten
}

// HostStatus describes one host of a Reader.
type HostStatus struct {
	Cluster, Host string
	Heard         time.Time // when NATS stored its last batch, by the clock of NATS
	LastEvent     time.Time // wall time of its last event, by the clock of the host
	Gaps, Missing uint64    // holes in seq, and the batches in them
	// Lost sums the losses that the producer counted, by cause, over its runs.
	Lost [schema.NumLosses]uint64
}

// Heard returns when NATS stored the last batch of a host, or of a job of which summaries of ranks come; zero: never.
func (r *Reader) Heard(cluster, name string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hosts[hostID{Cluster: cluster, Host: name}]; h != nil {
		return h.heard.Add(r.heardLater)
	}
	return time.Time{}
}

// Hosts lists the hosts of the shard, by cluster and name. Jobs of which summaries of ranks come are no hosts.
func (r *Reader) Hosts() []HostStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[hostID]*HostStatus, len(r.hosts))
	for id, h := range r.hosts {
		if h.job {
			continue
		}
		all[id] = &HostStatus{
			Cluster: id.Cluster, Host: id.Host, Heard: h.heard.Add(r.heardLater), LastEvent: h.lastEvent,
			Gaps: h.gaps, Missing: h.missing,
		}
	}
	for _, runs := range []map[runID]*runState{r.runs.old, r.runs.young} {
		for id, run := range runs {
			if h := all[hostID{Cluster: id.cluster, Host: id.host}]; h != nil {
				for cause, n := range run.lost {
					h.Lost[cause] += n
				}
			}
		}
	}
	list := make([]HostStatus, 0, len(all))
	for _, id := range slices.SortedFunc(maps.Keys(all), hostID.Compare) {
		list = append(list, *all[id])
	}
	return list
}
