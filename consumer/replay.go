package consumer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Replay feeds one fold with the messages of one shard that the caller has read, as a Reader does with those of its
// stream: it drops duplicates, and reports absent batches to the fold. It needs no NATS and stores no dead letters. One
// goroutine uses a Replay at a time; others may use its Reader meanwhile.
type Replay struct {
	reader    *Reader
	fold      Stateful
	whole     bool
	pseudonym func(schema.Private, string) string // see Redact; nil: names stay
}

// NewReplay returns a Replay with a new fold. whole says that state and messages together begin with the first message
// of the shard; otherwise batches from before the first one of a producer run do not count as lost.
func NewReplay(shard int, fold Stateful, whole bool, log *slog.Logger) *Replay {
	p := &Replay{reader: NewReader(ReaderOptions{Shard: shard}, nil, fold, log), fold: fold, whole: whole}
	p.reader.start.truncated = !whole
	return p
}

// WholeFor limits whole to these kinds: the state does not cover the others. Batches of the others from before their
// first one do not count as lost. Call it before Restore.
func (p *Replay) WholeFor(kinds ...schema.Kind) {
	for kind := range schema.NumKinds {
		p.reader.start.uncovered[kind] = !slices.Contains(kinds, kind)
	}
}

// Redact makes Sections write pseudonyms for private strings. It reports whether the fold can do that.
func (p *Replay) Redact(pseudonym func(schema.Private, string) string) bool {
	f, ok := p.fold.(interface {
		Redact(func(schema.Private, string) string)
	})
	if ok {
		f.Redact(pseudonym)
		p.pseudonym = pseudonym
	}
	return ok
}

// name returns what Sections write for a name of a section.
func (p *Replay) name(what schema.Private, name string) string {
	if p.pseudonym == nil || name == "" {
		return name
	}
	return p.pseudonym(what, name)
}

// Fold returns the fold.
func (p *Replay) Fold() Stateful { return p.fold }

// Reader returns the Reader that does the work, for its figures. It must not be run.
func (p *Replay) Reader() *Reader { return p.reader }

// ShowHeard adds a duration to the times at which the Reader says that it heard a host. A program that replays old
// messages as if they came now uses it. The state keeps the times of the messages.
func (p *Replay) ShowHeard(later time.Duration) {
	p.reader.mu.Lock()
	defer p.reader.mu.Unlock()
	p.reader.heardLater = later
}

// RestoreCheckpoint loads a checkpoint of the shard, before the first Apply. If hosts is not nil, it loads only the
// hosts that hosts accepts, and nothing that belongs to no host.
func (p *Replay) RestoreCheckpoint(state []byte, hosts func(cluster, host string) bool) error {
	err := p.reader.restore(state, p.fold, hosts)
	p.reader.runs.forgetKinds(p.reader.start.uncovered)
	p.reader.start.truncated = p.reader.start.truncated || !p.whole
	return err
}

// Restore loads a section of Sections, before the first Apply. The section without a host comes first.
func (p *Replay) Restore(s recording.Section) error {
	if name := p.fold.Name(); s.Fold != name {
		return fmt.Errorf("restore %s: the section belongs to fold %s", name, s.Fold)
	}
	var hosts func(cluster, host string) bool
	if s.Cluster != "" || s.Host != "" {
		hosts = func(cluster, host string) bool { return cluster == s.Cluster && host == s.Host }
	}
	if err := p.RestoreCheckpoint(s.Data, hosts); err != nil {
		return err
	}
	p.reader.setApplied(s.Sequence)
	p.reader.start.stored = s.Stored
	return nil
}

// Apply takes the next message. It skips a message that is not above the last one, of another kind than the fold takes,
// or useless.
func (p *Replay) Apply(m *recording.Message) {
	r := p.reader
	r.stepping.Lock()
	defer r.stepping.Unlock()
	if m.Sequence <= r.Applied() {
		return
	}
	r.forgetSilentHosts(m.Stored)
	result := outcomeSkipped
	if r.wants(m.Subject) {
		var err error
		if result, err = r.handle(m.Subject, m.Data); err != nil {
			r.warn("message cannot be used; skipped", "subject", m.Subject, "seq", m.Sequence, "err", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.count(result, &r.batch)
	r.advance(m.Sequence)
}

// Whole reports whether the state covers the shard from its first message on.
func (p *Replay) Whole() bool { return !p.reader.start.truncated && !p.reader.start.late }

// Sections yields the state: the section without a host, then one section for each host. Data are valid until yield
// returns. It stops at the first error of yield.
func (p *Replay) Sections(yield func(recording.Section) error) error {
	r := p.reader
	readers := r.split()
	w := snapshot.Writer{Pseudonym: p.pseudonym}
	section := func(id hostID, of *Section) error {
		w.Reset()
		w.Uint(stateForm)
		part := readers[id]
		if part == nil {
			part = &Reader{start: r.start}
		}
		part.code(&snapshot.Codec{Writer: &w})
		cluster, host := p.name(schema.PrivateCluster, id.Cluster), p.name(schema.PrivateHost, id.Host)
		if of != nil {
			w.Section(Section{Cluster: cluster, Host: host, Data: of.Data})
		}
		delete(readers, id)
		return yield(recording.Section{
			Fold: p.fold.Name(), Form: stateForm, Shard: r.opts.Shard, Sequence: r.Applied(), Stored: r.start.stored,
			Cluster: cluster, Host: host, Data: w.Data(),
		})
	}
	err := guard(func() error {
		return p.fold.Snapshot(func(s Section) error {
			id := hostID{Cluster: s.Cluster, Host: s.Host}
			if _, waits := readers[hostID{}]; waits && id != (hostID{}) { // the fold has no section without a host
				if err := section(hostID{}, nil); err != nil {
					return err
				}
			}
			return section(id, &s)
		})
	})
	for _, id := range slices.SortedFunc(maps.Keys(readers), hostID.Compare) { // the fold knows nothing of them
		if err == nil {
			err = section(id, nil)
		}
	}
	if err != nil {
		return fmt.Errorf("save the state of %s: %w", p.fold.Name(), err)
	}
	return nil
}

// split returns a reader for each host, with the state of that host. The zero hostID has the values without a host.
func (r *Reader) split() map[hostID]*Reader {
	readers := map[hostID]*Reader{}
	of := func(id hostID) *Reader {
		part := readers[id]
		if part == nil {
			part = &Reader{start: r.start, runs: runs{young: map[runID]*runState{}, old: map[runID]*runState{}},
				hosts: hostTable{}}
			readers[id] = part
		}
		return part
	}
	none := of(hostID{})
	none.stats, none.runs.forgotten = r.stats, r.runs.forgotten
	for id, s := range r.runs.old {
		of(hostID{Cluster: id.cluster, Host: id.host}).runs.old[id] = s
	}
	for id, s := range r.runs.young {
		of(hostID{Cluster: id.cluster, Host: id.host}).runs.young[id] = s
	}
	for id, s := range r.hosts {
		of(id).hosts[id] = s
	}
	return readers
}
