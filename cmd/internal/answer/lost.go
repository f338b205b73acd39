package answer

import (
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

// AddReaders adds the losses, and the last events of the hosts, of the readers of one stream. A reader knows only
// the kinds that its fold reads. Several read the same kind, so their counts are not summed: the largest one is that of
// the anomaly fold, which reads every kind of a host.
func (s *Snapshot) AddReaders(readers []*consumer.Reader) {
	for cause, n := range Lost(readers) {
		s.Lost[cause] += n
	}
	for _, r := range readers {
		for _, status := range r.Hosts() {
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
	if at := known(status.LastEvent); at != nil && (h.LastEvent == nil || h.LastEvent.Before(*at)) {
		h.LastEvent = at
	}
}

func (h *Host) addLost(status *consumer.HostStatus) {
	for cause, n := range status.Lost {
		losses(h.Lost).raise(schema.Loss(cause).String(), n)
	}
	losses(h.Lost).raise("missing_batches", status.Missing)
}
