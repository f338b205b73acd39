package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Section is the state of one host in one fold. The section without a host holds the values that cover all hosts.
type Section struct {
	Cluster, Host string
	Data          []byte // begins with the fold's name and the version of its form
}

// Fold returns the name of the fold that saved the section.
func (s *Section) Fold() string { return NewReader(s.Data).String() }

// HostID names a host.
type HostID struct{ Cluster, Host string }

// Compare orders by cluster, then host.
func (h HostID) Compare(to HostID) int {
	return cmp.Or(cmp.Compare(h.Cluster, to.Cluster), cmp.Compare(h.Host, to.Host))
}

// Form is how one fold saves its state. Shard passes over the values that cover all hosts, Host over those of one host;
// both are called with Lock held.
type Form struct {
	Fold    string
	Version uint64 // that Save writes, from 1 on; Restore reads it and all before
	Lock    sync.Locker
	Shard   func(*Codec)
	Host    func(*Codec, HostID)
}

// Save yields the section without a host and then one section for each host, in order. hosts may repeat a host. Save
// stops at the first error of yield. The lock is not held while yield runs. The sections share the memory of w.
func (f Form) Save(w *Writer, hosts []HostID, yield func(Section) error) error {
	none := HostID{}
	order := append([]HostID{none}, hosts...)
	slices.SortFunc(order, HostID.Compare)
	unnamed := slices.Contains(hosts, none)
	for _, id := range slices.Compact(order) {
		f.section(w, id, id != none || unnamed)
		if err := yield(Section{id.Cluster, id.Host, w.Data()}); err != nil {
			return err
		}
	}
	return nil
}

func (f Form) section(w *Writer, id HostID, known bool) {
	f.Lock.Lock()
	defer f.Lock.Unlock()
	w.Reset()
	w.String(f.Fold)
	w.Uint(f.Version)
	f.state(&Codec{Writer: w}, id, known)
}

// state passes over the state of a section. The section without a host also holds the part of a host without a name,
// if there is one.
func (f Form) state(c *Codec, id HostID, known bool) {
	if id == (HostID{}) {
		f.Shard(c)
		c.Bool(&known)
	}
	if known && !c.Failed() {
		f.Host(c, id)
	}
}

// Restore reads one section.
func (f Form) Restore(s Section) error {
	f.Lock.Lock()
	defer f.Lock.Unlock()
	r := NewReader(s.Data)
	f.begin(r)
	if r.err == nil {
		f.state(&Codec{Reader: r}, HostID{s.Cluster, s.Host}, true)
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
	version := r.Uint()
	switch {
	case r.err != nil:
	case version == 0:
		r.Fail("version 0")
	case version > f.Version:
		r.err = fmt.Errorf("%w: version %d, and this program reads up to %d: run the program that saved it, "+
			"or a newer one",
			ErrVersion, version, f.Version)
	}
}
