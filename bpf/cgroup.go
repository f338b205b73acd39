package bpf

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// CgroupRecord is struct cgroup_record of cgroup.bpf.c.
type CgroupRecord struct {
	ID        uint64
	PathBytes uint64
	Path      [1024]byte
}

// CgroupWatch reports new control groups of version 2.
type CgroupWatch struct {
	coll   *ebpf.Collection
	link   link.Link
	ring   *ringbuf.Reader
	record ringbuf.Record
	close  sync.Once
}

// WatchCgroups attaches to the tracepoint cgroup_mkdir. It fails on a Linux without the tracepoint or its BTF.
func WatchCgroups() (*CgroupWatch, error) {
	spec, err := LoadCgroup()
	if err != nil {
		return nil, fmt.Errorf("read embedded programs: %w", err)
	}
	w := &CgroupWatch{}
	if w.coll, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("load %s: %w", CgroupProgCgroupMade, err)
	}
	if w.ring, err = ringbuf.NewReader(w.coll.Maps[CgroupMapCgroups]); err != nil {
		w.Close()
		return nil, fmt.Errorf("open ring of control groups: %w", err)
	}
	w.link, err = link.AttachTracing(link.TracingOptions{Program: w.coll.Programs[CgroupProgCgroupMade]})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("attach %s: %w", CgroupProgCgroupMade, err)
	}
	return w, nil
}

// Next waits for the next group. It returns the group's id and its path from the root of the hierarchy. The directory
// may not be visible yet. The error is os.ErrDeadlineExceeded after the deadline and os.ErrClosed after Close.
func (w *CgroupWatch) Next(deadline time.Time) (id uint64, path string, err error) {
	w.ring.SetDeadline(deadline)
	if err := w.ring.ReadInto(&w.record); err != nil {
		return 0, "", err
	}
	r := As[CgroupRecord](w.record.RawSample) // the programs write no other record
	name, _, _ := bytes.Cut(r.Path[:min(r.PathBytes, uint64(len(r.Path)))], []byte{0})
	return r.ID, string(name), nil
}

// Close ends a waiting Next. Any goroutine may call it, more than once.
func (w *CgroupWatch) Close() {
	w.close.Do(func() {
		if w.link != nil {
			_ = w.link.Close()
		}
		if w.ring != nil {
			_ = w.ring.Close()
		}
		w.coll.Close()
	})
}
