package consumer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// What a checkpoint holds: the form, what the Reader knows of producers and hosts, and the fold's sections. Everything
// is sorted, so equal states are equal bytes. Numbers are unsigned varints, texts have their length before them.

// Form 1 did not say when hosts were heard of, and said whether the stream had let go of its beginning when last looked at, not
// when reading began.
const savedForm = 2

// save appends the state of the reader and its fold. No step may be under way.
func (r *Reader) save(to []byte, fold Stateful) ([]byte, error) {
	to = binary.AppendUvarint(to, savedForm)
	r.mu.Lock()
	to = r.saveStats(to)
	to = r.saveRuns(to)
	to = r.saveHosts(to)
	r.mu.Unlock()
	err := guard(func() error {
		return fold.Snapshot(func(s Section) error {
			to = appendText(appendText(appendText(to, s.Cluster), s.Host), s.Data)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("save the state of %s: %w", fold.Name(), err)
	}
	return to, nil
}

// guard makes a panic of a fold an error: a state that cannot be saved or taken up must not end the consumer.
func guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("fold panicked: %v", p)
		}
	}()
	return call()
}

// restore takes up what save made, in a new reader with a new fold. With some it takes up those hosts alone, and nothing that
// is not a host's.
func (r *Reader) restore(state []byte, fold Stateful, some func(cluster, host string) bool) error {
	if len(state) == 0 {
		return nil
	}
	in := &saved{rest: state}
	if in.form = in.uint(); in.err == nil && in.form > savedForm {
		return fmt.Errorf("%w: form %d, and this one reads up to %d", errNewer, in.form, savedForm)
	}
	to := r
	if some != nil { // what all hosts of another shard made together stays there
		to = &Reader{runs: newRuns(), hosts: hosts{}}
	}
	to.restoreStats(in)
	to.restoreRuns(in)
	to.restoreHosts(in)
	if some != nil {
		r.adopt(to, some)
	}
	for in.err == nil && len(in.rest) > 0 {
		s := Section{Cluster: in.text(), Host: in.text(), Data: in.bytes()}
		if in.err != nil {
			break
		}
		id := hostID{s.Cluster, s.Host}
		if some != nil && (id == (hostID{}) || !some(s.Cluster, s.Host)) {
			continue
		}
		if err := guard(func() error { return fold.Restore(s) }); err != nil {
			return fmt.Errorf("restore %s of host %s: %w", fold.Name(), s.Host, err)
		}
		r.expect(id, fold)
	}
	return in.err
}

// expect has a host that the fold holds be one that is let go of when it stays silent: programs before let go of hosts without
// telling folds.
func (r *Reader) expect(id hostID, fold Fold) {
	if _, ok := fold.(forgetful); ok && id != (hostID{}) && r.hosts[id] == nil {
		r.hosts[id] = &hostStats{}
	}
}

// adopt takes over what another reader knew of some hosts.
func (r *Reader) adopt(from *Reader, some func(cluster, host string) bool) {
	for _, states := range []map[runID]*runState{from.runs.old, from.runs.young} {
		for id, s := range states {
			if some(id.cluster, id.host) {
				r.runs.young[id] = s
			}
		}
	}
	r.place.cut = r.place.cut || from.place.cut
	for id, h := range from.hosts {
		if some(id.cluster, id.host) {
			r.hosts[id] = h
		}
	}
}

func (r *Reader) saveStats(to []byte) []byte {
	s := &r.stats
	for _, n := range s.counts() {
		to = binary.AppendUvarint(to, *n)
	}
	to = appendTime(to, s.LastEvent)
	to = append(to, boolByte(r.place.late), boolByte(r.place.cut))
	return to
}

func (r *Reader) restoreStats(in *saved) {
	for _, n := range r.stats.counts() {
		*n = in.uint()
	}
	r.stats.LastEvent = in.time()
	r.place.late = in.uint() != 0
	cut := in.uint() != 0
	r.place.cut = cut && in.form > 1
}

// counts are the counters that a checkpoint holds, in a fixed order; new ones go to the end, with a new form.
func (s *Stats) counts() []*uint64 {
	list := []*uint64{
		&s.Batches, &s.Duplicates, &s.Invalid, &s.Refused, &s.Unknown, &s.Gaps, &s.Missing, &s.Retention, &s.LateStart,
		&s.DeadLetters, &s.DeadLettersLost,
	}
	for kind := range s.Events {
		list = append(list, &s.Events[kind])
	}
	return list
}

func (r *Reader) saveRuns(to []byte) []byte {
	for _, n := range r.runs.forgotten {
		to = binary.AppendUvarint(to, n)
	}
	for _, states := range []map[runID]*runState{r.runs.old, r.runs.young} {
		ids := make([]runID, 0, len(states))
		for id := range states {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, func(a, b runID) int {
			return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.host, b.host), cmp.Compare(a.boot, b.boot), cmp.Compare(a.run, b.run))
		})
		to = binary.AppendUvarint(to, uint64(len(ids)))
		for _, id := range ids {
			to = binary.AppendUvarint(appendText(appendText(appendText(to, id.cluster), id.host), id.boot), id.run)
			for _, n := range states[id].seq {
				to = binary.AppendUvarint(to, n)
			}
			for _, n := range states[id].lost {
				to = binary.AppendUvarint(to, n)
			}
		}
	}
	return to
}

func (r *Reader) restoreRuns(in *saved) {
	for cause := range r.runs.forgotten {
		r.runs.forgotten[cause] = in.uint()
	}
	const leastBytes = 4 + int(schema.NumKinds) + int(schema.NumLosses)
	read := func() map[runID]*runState {
		n := in.count(leastBytes)
		states := make(map[runID]*runState, n)
		for range n {
			id, s := runID{in.text(), in.text(), in.text(), in.uint()}, &runState{}
			for kind := range s.seq {
				s.seq[kind] = in.uint()
			}
			for cause := range s.lost {
				s.lost[cause] = in.uint()
			}
			states[id] = s
		}
		return states
	}
	r.runs.old = read()
	r.runs.young = read()
}

func (r *Reader) saveHosts(to []byte) []byte {
	ids := make([]hostID, 0, len(r.hosts))
	for id := range r.hosts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, hostID.compare)
	to = binary.AppendUvarint(to, uint64(len(ids)))
	for _, id := range ids {
		h := r.hosts[id]
		to = appendTime(appendText(appendText(to, id.cluster), id.host), h.last)
		to = appendTime(binary.AppendUvarint(binary.AppendUvarint(to, h.gaps), h.missing), h.heard)
	}
	return to
}

func (r *Reader) restoreHosts(in *saved) {
	for range in.count(5) {
		id := hostID{in.text(), in.text()}
		h := &hostStats{last: in.time(), gaps: in.uint(), missing: in.uint()}
		if in.form > 1 {
			h.heard = in.time()
		}
		r.hosts[id] = h
	}
}

func appendText[T string | []byte](to []byte, text T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// appendTime writes Unix nanoseconds, 0 for no time.
func appendTime(to []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendUvarint(to, 0)
	}
	return binary.AppendUvarint(to, uint64(t.UnixNano()))
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

var errShort = errors.New("state ends too early")

// saved reads what save wrote. After its first error everything is zero.
type saved struct {
	form uint64
	rest []byte
	err  error
}

func (s *saved) uint() uint64 {
	v, n := binary.Uvarint(s.rest)
	if n <= 0 {
		s.fail()
		return 0
	}
	s.rest = s.rest[n:]
	return v
}

// count is how many entries follow that take at least so many bytes each.
func (s *saved) count(leastBytes int) int {
	n := s.uint()
	if n > uint64(len(s.rest)/leastBytes) {
		s.fail()
		return 0
	}
	return int(n)
}

// bytes borrows from the state.
func (s *saved) bytes() []byte {
	n := s.count(1)
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

func (s *saved) text() string { return string(s.bytes()) }

func (s *saved) time() time.Time {
	if ns := s.uint(); ns != 0 {
		return time.Unix(0, int64(ns))
	}
	return time.Time{}
}

func (s *saved) fail() {
	if s.err == nil {
		s.err = errShort
	}
	s.rest = nil
}
