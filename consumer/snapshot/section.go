package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Section is the state of one host in one fold. The section without a host holds the values that cover all hosts.
type Section struct {
	Cluster, Host string
	Data          []byte // begins with the fold's name and the version of its form
}

// HostID names a host.
type HostID struct{ Cluster, Host string }

// Compare orders by cluster, then host.
func (h HostID) Compare(to HostID) int {
	return cmp.Or(cmp.Compare(h.Cluster, to.Cluster), cmp.Compare(h.Host, to.Host))
}

// Form identifies how a fold writes its sections.
type Form struct {
	Fold    string
	Version uint64 // that Save writes, from 1 on; Restore reads it and all before
}

// Parts write or read the state: Shard the values that cover all hosts, Host those of one host. Both are called
// with Lock held.
type Parts[T any] struct {
	Lock  sync.Locker
	Shard func(T)
	Host  func(T, HostID)
}

// Save yields the section without a host and then one section for each host, in order. It stops at the first error of
// yield. The lock is not held while yield runs. The sections share the memory of w.
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

// section writes one section. The section without a host also holds the part of a host without a name, if there is one.
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
		r.Fail("it belongs to fold %q", fold)
	}
	r.version = r.Uint()
	switch {
	case r.err != nil:
	case r.version == 0:
		r.Fail("version 0")
	case r.version > f.Version:
		r.err = fmt.Errorf("%w: version %d, and this program reads up to %d: run the program that saved it, "+
			"or a newer one",
			ErrVersion, r.version, f.Version)
	}
}
