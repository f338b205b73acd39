package consumer

import (
	"cmp"
	"fmt"

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
	r.code(&snapshot.Codec{Writer: w})
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
	to.code(&snapshot.Codec{Reader: in})
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
		if hosts(id.Cluster, id.Host) {
			r.hosts[id] = h
		}
	}
}

// code passes over the state of the reader without the fold.
func (r *Reader) code(c *snapshot.Codec) {
	s := &r.stats
	snapshot.Uint(c, &s.Batches, &s.Duplicates, &s.Invalid, &s.Refused, &s.Unknown, &s.Gaps, &s.Missing, &s.Retention,
		&s.LateStart, &s.DeadLetters, &s.DeadLettersLost)
	codeCounts(c, s.Events[:])
	c.Time(&s.LastEvent)
	c.Bool(&r.start.late, &r.start.truncated)
	codeCounts(c, r.runs.forgotten[:])
	codeRuns(c, &r.runs.old)
	codeRuns(c, &r.runs.young)
	hosts := (map[hostID]*hostState)(r.hosts)
	snapshot.Map(c, &hosts, 8, hostID.Compare, func(id *hostID, h **hostState) {
		if c.Reading() {
			*h = &hostState{}
		}
		c.Private(schema.PrivateCluster, &id.Cluster)
		c.Private(schema.PrivateHost, &id.Host)
		c.Time(&(*h).lastEvent)
		snapshot.Uint(c, &(*h).gaps, &(*h).missing)
		c.Time(&(*h).heard, &(*h).stored)
		c.Bool(&(*h).job)
	})
}

func codeRuns(c *snapshot.Codec, all *map[runID]*runState) {
	const leastBytes = 5 + int(schema.NumKinds) + int(schema.NumLosses)
	snapshot.Map(c, all, leastBytes, runID.compare, func(id *runID, s **runState) {
		if c.Reading() {
			*s = &runState{}
		}
		c.Private(schema.PrivateCluster, &id.cluster)
		c.Private(schema.PrivateHost, &id.host)
		c.String(&id.boot)
		snapshot.Uint(c, &id.run)
		codeCounts(c, (*s).seq[:])
		codeCounts(c, (*s).lost[:])
		snapshot.List(c, &(*s).ends, 1+int(schema.NumKinds), func(e *end) {
			codeCounts(c, e.seq[:])
			snapshot.Uint(c, &e.through)
		})
	})
}

func codeCounts(c *snapshot.Codec, counts []uint64) {
	for i := range counts {
		snapshot.Uint(c, &counts[i])
	}
}

func (a runID) compare(b runID) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.host, b.host), cmp.Compare(a.boot, b.boot),
		cmp.Compare(a.run, b.run))
}
