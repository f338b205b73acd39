package consumer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// A saved state is, in this order: the form, the reader's counters, producer runs and hosts, and the sections of the
// fold. All of it is sorted, so equal states are equal bytes.

// stateForm is the only form that exists. A change of the order or the meaning of the values gets the next number.
const stateForm = 1

// State returns the state of the reader and its fold as a checkpoint holds it. It waits for the current batch.
func (r *Reader) State(fold Stateful) ([]byte, error) {
	r.stepping.Lock()
	defer r.stepping.Unlock()
	var w snapshot.Writer
	err := r.save(&w, fold)
	return w.Data(), err
}

// save appends the state of the reader and its fold. stepping must be held.
func (r *Reader) save(w *snapshot.Writer, fold Stateful) error {
	w.Uint(stateForm)
	r.mu.Lock()
	r.saveStats(w)
	r.saveRuns(w)
	r.saveHosts(w)
	r.mu.Unlock()
	err := guard(func() error {
		return fold.Snapshot(func(s Section) error {
			w.Section(s)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("save the state of %s: %w", fold.Name(), err)
	}
	return nil
}

// restore loads what save wrote, into a new reader with a new fold. If hosts is not nil, it loads only the hosts that
// hosts accepts, and nothing that belongs to no host.
func (r *Reader) restore(state []byte, fold Stateful, hosts func(cluster, host string) bool) error {
	if len(state) == 0 {
		return nil
	}
	in := snapshot.NewReader(state)
	if form := in.Uint(); in.Err() == nil && form > stateForm {
		return fmt.Errorf("%w: form %d, and this program reads form %d", snapshot.ErrVersion, form, stateForm)
	}
	to := r
	if hosts != nil {
		to = &Reader{runs: newRuns(), hosts: hostTable{}}
	}
	to.restoreStats(in)
	to.restoreRuns(in)
	to.restoreHosts(in)
	if hosts != nil {
		r.adopt(to, hosts)
	}
	for in.Err() == nil && in.Room(1) > 0 {
		s := in.Section()
		if in.Err() != nil {
			break
		}
		if hosts != nil && (s.Cluster == "" && s.Host == "" || !hosts(s.Cluster, s.Host)) {
			continue
		}
		if err := guard(func() error { return fold.Restore(s) }); err != nil {
			return fmt.Errorf("restore %s of host %s: %w", fold.Name(), s.Host, err)
		}
	}
	return in.Err()
}

// adopt takes over what another reader knows of some hosts.
func (r *Reader) adopt(from *Reader, hosts func(cluster, host string) bool) {
	for _, states := range []map[runID]*runState{from.runs.old, from.runs.young} {
		for id, s := range states {
			if hosts(id.cluster, id.host) {
				r.runs.young[id] = s
			}
		}
	}
	r.start.truncated = r.start.truncated || from.start.truncated
	for id, h := range from.hosts {
		if hosts(id.cluster, id.host) {
			r.hosts[id] = h
		}
	}
}

func (r *Reader) saveStats(w *snapshot.Writer) {
	for _, n := range r.stats.counts() {
		w.Uint(*n)
	}
	w.Time(r.stats.LastEvent)
	w.Bool(r.start.late)
	w.Bool(r.start.truncated)
}

func (r *Reader) restoreStats(in *snapshot.Reader) {
	for _, n := range r.stats.counts() {
		*n = in.Uint()
	}
	r.stats.LastEvent = in.Time()
	r.start.late = in.Bool()
	r.start.truncated = in.Bool()
}

// counts are the counters that a state holds, in a fixed order.
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

func (r *Reader) saveRuns(w *snapshot.Writer) {
	for _, n := range r.runs.forgotten {
		w.Uint(n)
	}
	for _, states := range []map[runID]*runState{r.runs.old, r.runs.young} {
		w.Uint(uint64(len(states)))
		for _, id := range slices.SortedFunc(maps.Keys(states), runID.compare) {
			w.String(id.cluster)
			w.String(id.host)
			w.String(id.boot)
			w.Uint(id.run)
			for _, n := range states[id].seq {
				w.Uint(n)
			}
			for _, n := range states[id].lost {
				w.Uint(n)
			}
		}
	}
}

func (a runID) compare(b runID) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.host, b.host), cmp.Compare(a.boot, b.boot),
		cmp.Compare(a.run, b.run))
}

func (r *Reader) restoreRuns(in *snapshot.Reader) {
	for cause := range r.runs.forgotten {
		r.runs.forgotten[cause] = in.Uint()
	}
	const leastBytes = 4 + int(schema.NumKinds) + int(schema.NumLosses)
	for _, states := range []*map[runID]*runState{&r.runs.old, &r.runs.young} {
		*states = map[runID]*runState{}
		for range in.Each(leastBytes) {
			id, s := runID{in.String(), in.String(), in.String(), in.Uint()}, &runState{}
			for kind := range s.seq {
				s.seq[kind] = in.Uint()
			}
			for cause := range s.lost {
				s.lost[cause] = in.Uint()
			}
			(*states)[id] = s
		}
	}
}

func (r *Reader) saveHosts(w *snapshot.Writer) {
	w.Uint(uint64(len(r.hosts)))
	for _, id := range slices.SortedFunc(maps.Keys(r.hosts), hostID.compare) {
		h := r.hosts[id]
		w.String(id.cluster)
		w.String(id.host)
		w.Time(h.lastEvent)
		w.Uint(h.gaps)
		w.Uint(h.missing)
		w.Time(h.stored)
	}
}

func (r *Reader) restoreHosts(in *snapshot.Reader) {
	for range in.Each(6) {
		id := hostID{in.String(), in.String()}
		r.hosts[id] = &hostState{lastEvent: in.Time(), gaps: in.Uint(), missing: in.Uint(), stored: in.Time()}
	}
}
