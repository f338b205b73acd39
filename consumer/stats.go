package consumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// Why batches from before the first one of a run are no loss.
const (
	reasonLateStart = "late_start" // ReaderOptions say to begin later
	reasonRetention = "retention"  // the stream had let go of its beginning, or it went to shards of a generation before
)

// Stats is what a Reader has dealt with since it began.
type Stats struct {
	Batches         uint64                  // applied
	Events          [schema.NumKinds]uint64 // in them, by kind
	Duplicates      uint64
	Invalid         uint64 // no batch, or none of the host that its subject names
	Refused         uint64 // the fold failed on them
	Unknown         uint64 // of a kind that this version does not know
	Gaps            uint64 // holes in seq
	Missing         uint64 // batches in those holes: lost
	Retention       uint64 // batches that the stream had let go of, or that only shards of a generation before had
	LateStart       uint64 // batches from before the start that ReaderOptions ask for
	DeadLetters     uint64
	DeadLettersLost uint64    // could not be copied
	Lag             uint64    // messages that are stored and not dealt with
	LastEvent       time.Time // latest event of any host
}

func (s *Stats) count(o outcome, b *schema.Batch) {
	switch o {
	case outcomeDuplicate:
		s.Duplicates++
	case outcomeInvalid:
		s.Invalid++
	case outcomeRefused:
		s.Refused++
	case outcomeUnknown:
		s.Unknown++
	case outcomeOK:
		s.Batches++
		s.Events[b.Kind] += uint64(b.Events)
		if last := b.Wall(b.Last); b.Events > 0 && last.After(s.LastEvent) {
			s.LastEvent = last
		}
	}
}

func (s *Stats) absent(reason string, batches uint64) {
	switch {
	case batches == 0:
	case reason == reasonLateStart:
		s.LateStart += batches
	case reason == reasonRetention:
		s.Retention += batches
	default:
		s.Gaps++
		s.Missing += batches
	}
}

const (
	maxHosts = 10_000         // of one shard
	keepHost = 24 * time.Hour // after the bus stored its last batch
)

type hostID struct{ cluster, host string }

// hostStats is what a Reader knows of one host.
type hostStats struct {
	heard   time.Time // when the bus stored its last batch, later by the time in which it stored none; zero: not known
	last    time.Time // wall clock of its last event
	gaps    uint64
	missing uint64
}

func (a hostID) compare(b hostID) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.host, b.host))
}

// hosts is bounded: beyond maxHosts the one that has been silent for longest goes, of several the first by name.
type hosts map[hostID]*hostStats

// saw takes note of a batch, and gives the hosts that had to go for a new one: several where shards came together.
func (h hosts) saw(b *schema.Header, stored time.Time, reason string, absent uint64) (gone []hostID) {
	id := hostID{b.Cluster, b.Host}
	s := h[id]
	if s == nil {
		for len(h) >= maxHosts {
			gone = append(gone, h.dropOldest())
		}
		s = &hostStats{}
		h[id] = s
	}
	s.heard = stored
	if absent > 0 && reason == "" {
		s.gaps++
		s.missing += absent
	}
	if last := b.Wall(b.Last); b.Events > 0 && last.After(s.last) {
		s.last = last
	}
	return gone
}

func (h hosts) dropOldest() (oldest hostID) {
	var first *hostStats
	for id, s := range h {
		if first == nil || cmp.Or(s.heard.Compare(first.heard), id.compare(oldest)) < 0 {
			oldest, first = id, s
		}
	}
	delete(h, oldest)
	return oldest
}

// forget lets go of hosts that were silent for a day before now, and gives them in order. While nobody was heard of for an hour
// and more nobody could be: that is no silence.
func (h hosts) forget(now time.Time) (gone []hostID) {
	var newest time.Time
	for _, s := range h {
		if s.heard.After(newest) {
			newest = s.heard
		}
	}
	away := now.Sub(newest)
	for id, s := range h {
		switch {
		case s.heard.IsZero():
			s.heard = now
		case away > time.Hour:
			s.heard = s.heard.Add(away)
		}
		if now.Sub(s.heard) > keepHost {
			delete(h, id)
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, hostID.compare)
	return gone
}
