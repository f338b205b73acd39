package report

import (
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

// AddReaders adds the losses, and when the hosts were last heard, of the readers of one stream. A reader knows only the
// kinds that its fold reads. Several read the same kind, so their counts are not summed: the largest one is that of the
// anomaly fold, which reads every kind of a host.
func (s *Snapshot) AddReaders(readers []*consumer.Reader) {
	for cause, n := range Lost(readers) {
		s.Lost[cause] += n
	}
	for _, r := range readers {
		for _, status := range r.Hosts() {
			for _, p := range s.Processes {
				if p.Cluster == status.Cluster && p.Host == status.Host {
					p.Heard = later(p.Heard, status.Heard)
				}
			}
			for i := range s.Hosts {
				if h := &s.Hosts[i]; h.Cluster == status.Cluster && h.Host == status.Host {
					h.add(&status)
				}
			}
		}
	}
}

// Lost returns by cause the events that producers lost, and the batches that are missing or that no fold could apply.
// The readers are those of AddReaders.
func Lost(readers []*consumer.Reader) map[string]uint64 {
	lost := losses{}
	for _, r := range readers {
		for cause, n := range r.Lost() {
			lost.raise(schema.Loss(cause).String(), n)
		}
		stats := r.Stats()
		lost.raise("missing_batches", stats.Missing)
		lost.raise("invalid_batches", stats.Invalid+stats.Refused)
	}
	return lost
}

// losses are losses by cause, without those that are 0.
type losses map[string]uint64

// raise raises the count of a cause to n, if it is less.
func (l losses) raise(cause string, n uint64) {
	if n > l[cause] {
		l[cause] = n
	}
}

// add takes what another reader knows of the host.
func (h *Host) add(status *consumer.HostStatus) {
	h.addLost(status)
	h.Heard, h.LastEvent = later(h.Heard, status.Heard), later(h.LastEvent, status.LastEvent)
}

// later returns the later of two times. Zero is unknown.
func later(a *time.Time, b time.Time) *time.Time {
	if a == nil || a.Before(b) {
		return known(b)
	}
	return a
}

func (h *Host) addLost(status *consumer.HostStatus) {
	for cause, n := range LossesOf(status) {
		losses(h.Lost).raise(cause, n)
	}
}

// LossesOf returns the losses of a host that a reader knows, by cause, without those that are 0.
func LossesOf(status *consumer.HostStatus) map[string]uint64 {
	lost := losses{}
	for cause, n := range status.Lost {
		lost.raise(schema.Loss(cause).String(), n)
	}
	lost.raise("missing_batches", status.Missing)
	return lost
}
