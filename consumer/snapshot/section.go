package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Section is the state of one host in one fold; the section of no host is what a fold keeps of all of them.
type Section struct {
	Cluster, Host string
	Data          []byte // in the fold's own form, whose version it begins with
}

// HostID names one host of one fleet.
type HostID struct{ Cluster, Host string }

// Compare orders by cluster, then host.
func (h HostID) Compare(to HostID) int {
	return cmp.Or(cmp.Compare(h.Cluster, to.Cluster), cmp.Compare(h.Host, to.Host))
}

// Form is how one fold writes its sections.
type Form struct {
	Fold    string
	Version uint64 // of what is written, from 1 on; all up to it are read
}

// Parts are what a fold writes, or reads: Shard what it keeps of all hosts, Host what it keeps of one.
// Each is called with Lock held.
type Parts[T any] struct {
	Lock  sync.Locker
	Shard func(T)
	Host  func(T, HostID)
}

// Save yields the section of no host and then one of each host, in order; an error of yield ends it.
// The lock is not held while yield runs. The sections share w's memory.
func (f Form) Save(w *Writer, hosts map[HostID]bool, parts Parts[*Writer], yield func(Section) error) error {
	order := slices.SortedFunc(maps.Keys(hosts), HostID.Compare)
	if len(order) == 0 || order[0] != (HostID{}) {
		order = slices.Insert(order, 0, HostID{})
	}
	for _, id := range order {
		f.section(w, id, hosts[id], parts)
		if err := yield(Section{id.Cluster, id.Host, w.Data()}); err != nil {
			return err
		}
	}
	return nil
}

// section writes one section. That of no host may hold a host's part too: of one without a name.
func (f Form) section(w *Writer, id HostID, known bool, parts Parts[*Writer]) {
	parts.Lock.Lock()
	defer parts.Lock.Unlock()
	w.Reset()
	w.String(f.Fold)
	w.Uint(f.Version)
	if id == (HostID{}) {
		parts.Shard(w)
		w.Bool(known)
	}
	if known {
		parts.Host(w, id)
	}
}

// Restore reads one section.
func (f Form) Restore(s Section, parts Parts[*Reader]) error {
	parts.Lock.Lock()
	defer parts.Lock.Unlock()
	r, id := NewReader(s.Data), HostID{s.Cluster, s.Host}
	f.begin(r)
	known := true
	if id == (HostID{}) && r.err == nil {
		parts.Shard(r)
		known = r.Bool()
	}
	if known && r.err == nil {
		parts.Host(r, id)
	}
	if r.err == nil && len(r.data) > 0 {
		r.Fail("%d bytes too many", len(r.data))
	}
	if r.err != nil {
		return fmt.Errorf("restore %s state of host %q of cluster %q: %w", f.Fold, s.Host, s.Cluster, r.err)
	}
	return nil
}

func (f Form) begin(r *Reader) {
	if fold := r.String(); r.err == nil && fold != f.Fold {
		r.Fail("it is of fold %q", fold)
	}
	r.version = r.Uint()
	switch {
	case r.err != nil:
	case r.version == 0:
		r.Fail("version 0")
	case r.version > f.Version:
		r.err = fmt.Errorf("%w: it has version %d and this program reads up to %d: run the program that wrote it, or a newer one",
			ErrVersion, r.version, f.Version)
	}
}
