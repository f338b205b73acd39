package launch

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

var form = snapshot.Form{Fold: "launch", Version: 1}

// Snapshot passes the state to yield, one section per host. Counts by kernel name are in the section of no host. The
// goroutine that calls Apply calls Snapshot.
func (h *Histogram) Snapshot(yield func(snapshot.Section) error) error {
	hosts, of := map[snapshot.HostID]bool{}, map[snapshot.HostID][]workload{}
	h.processes.Hosts(hosts)
	for k := range h.workloads.values {
		hosts[k.host] = true
		of[k.host] = append(of[k.host], k)
	}
	return form.Save(&h.out, hosts, snapshot.Parts[*snapshot.Writer]{
		Lock:  &h.mu,
		Shard: h.saveShard,
		Host: func(w *snapshot.Writer, id snapshot.HostID) {
			h.saveWorkloads(w, of[id])
			h.processes.SaveHost(w, id, func(e *process.Entry[state]) { e.State.save(w) })
		},
	}, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (h *Histogram) Restore(section snapshot.Section) error {
	return form.Restore(section, snapshot.Parts[*snapshot.Reader]{
		Lock:  &h.mu,
		Shard: h.restoreShard,
		Host: func(r *snapshot.Reader, id snapshot.HostID) {
			h.restoreWorkloads(r, id)
			h.processes.RestoreHost(r, id, func(e *process.Entry[state]) { e.State.restore(r, h.names) })
		},
	})
}

func (h *Histogram) saveShard(w *snapshot.Writer) {
	h.processes.SaveShard(w)
	w.Bool(h.workloads.rest != nil)
	if h.workloads.rest != nil {
		h.workloads.rest.save(w)
	}
	h.byName.save(w)
}

func (h *Histogram) restoreShard(r *snapshot.Reader) {
	h.processes.RestoreShard(r)
	if r.Bool() {
		h.workloads.other().restore(r)
	}
	h.byName.restore(r)
}

func (h *Histogram) saveWorkloads(w *snapshot.Writer, all []workload) {
	slices.SortFunc(all, func(a, b workload) int {
		return cmp.Or(cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.uuid, b.uuid), cmp.Compare(a.container, b.container),
			cmp.Compare(a.comm, b.comm))
	})
	w.Uint(uint64(len(all)))
	for _, k := range all {
		for _, label := range []string{k.gpu, k.uuid, k.container, k.comm} {
			w.String(label)
		}
		h.workloads.values[k].save(w)
	}
}

func (h *Histogram) restoreWorkloads(r *snapshot.Reader, id snapshot.HostID) {
	for range r.Each(8) {
		k := workload{
			host: id, gpu: process.RestoreLabel(r), uuid: process.RestoreLabel(r), container: process.RestoreLabel(r),
			comm: process.RestoreLabel(r),
		}
		if h.workloads.values[k] != nil {
			r.Fail("a workload appears twice")
			return
		}
		var n launches
		n.restore(r)
		h.workloads.at(k).add(&n)
	}
}

func (l *launches) save(w *snapshot.Writer) {
	for _, n := range []uint64{l.kernels, l.fromGraphs, l.graphs, l.partial} {
		w.Uint(n)
	}
}

func (l *launches) restore(r *snapshot.Reader) {
	*l = launches{kernels: r.Uint(), fromGraphs: r.Uint(), graphs: r.Uint(), partial: r.Uint()}
}

func (s *state) save(w *snapshot.Writer) {
	for _, n := range []uint64{s.other, s.graphs, s.partial, s.recorded, s.hostFuncs} {
		w.Uint(n)
	}
	w.Uint(uint64(len(s.kernels)))
	for _, mangled := range slices.Sorted(maps.Keys(s.kernels)) {
		k := s.kernels[mangled]
		w.String(mangled)
		w.Bool(k.read)
		w.Uint(k.launches)
		w.Uint(k.fromGraphs)
		w.Uint(uint64(len(k.shapes)))
		for i := range k.shapes {
			k.shapes[i].save(w)
		}
	}
}

func (s *state) restore(r *snapshot.Reader, names names) {
	*s = state{other: r.Uint(), graphs: r.Uint(), partial: r.Uint(), recorded: r.Uint(), hostFuncs: r.Uint()}
	for range r.Each(5) {
		mangled := r.String()
		if r.Err() != nil || s.kernels[mangled] != nil {
			r.Fail("a kernel appears twice")
			return
		}
		if s.kernels == nil {
			s.kernels = map[string]*kernel{}
		}
		k := &kernel{name: names.lookup(mangled), read: r.Bool(), launches: r.Uint(), fromGraphs: r.Uint()}
		s.kernels[mangled] = k
		for i := range r.Each(8) {
			if i == maxShapes {
				r.Fail("more than %d shapes", maxShapes)
				return
			}
			k.shapes = append(k.shapes, restoreShape(r))
		}
	}
}

func (s *Shape) save(w *snapshot.Writer) {
	for i := range 3 {
		w.Uint(uint64(s.Grid[i]))
		w.Uint(uint64(s.Block[i]))
	}
	w.Uint(uint64(s.SharedBytes))
	w.Uint(s.Launches)
}

func restoreShape(r *snapshot.Reader) (s Shape) {
	for i := range 3 {
		s.Grid[i], s.Block[i] = r.Uint32(), r.Uint32()
	}
	s.SharedBytes, s.Launches = r.Uint32(), r.Uint()
	return s
}

// save writes every series, and for each comm its named kernels and the launches of its waiting kernels.
func (n *byName) save(w *snapshot.Writer) {
	rest := n.counts.rest
	w.Bool(rest != nil)
	if rest != nil {
		w.Uint(*rest)
	}
	labels := slices.SortedFunc(maps.Keys(n.counts.values), func(a, b kernelLabels) int {
		return cmp.Or(cmp.Compare(a.comm, b.comm), cmp.Compare(a.kernel, b.kernel))
	})
	w.Uint(uint64(len(labels)))
	for _, l := range labels {
		w.String(l.comm)
		w.String(l.kernel)
		w.Uint(*n.counts.values[l])
	}
	w.Uint(uint64(len(n.comms)))
	for _, name := range slices.Sorted(maps.Keys(n.comms)) {
		c := n.comms[name]
		w.String(name)
		w.Uint(uint64(len(c.promoted)))
		for _, kernel := range slices.Sorted(maps.Keys(c.promoted)) {
			w.String(kernel)
		}
		w.Uint(uint64(len(c.waiting)))
		for _, kernel := range slices.Sorted(maps.Keys(c.waiting)) {
			w.String(kernel)
			w.Uint(c.waiting[kernel])
		}
	}
}

func (n *byName) restore(r *snapshot.Reader) {
	if r.Bool() {
		*n.counts.other() = r.Uint()
	}
	for range r.Each(3) {
		l, launches := kernelLabels{process.RestoreLabel(r), process.RestoreLabel(r)}, r.Uint()
		if n.counts.values[l] != nil {
			r.Fail("a series appears twice")
			return
		}
		n.counts.values[l] = &launches
	}
	for range r.Each(3) {
		c := &comm{name: process.RestoreLabel(r), promoted: map[string]*uint64{}, waiting: map[string]uint64{}}
		if n.comms[c.name] != nil {
			r.Fail("a comm appears twice")
			return
		}
		n.comms[c.name] = c
		n.restoreComm(r, c)
	}
}

// restoreComm finds the series of each named kernel: its own, or the one for everything above the limit.
func (n *byName) restoreComm(r *snapshot.Reader, c *comm) {
	for range r.Each(1) {
		kernel := process.RestoreLabel(r)
		at := n.counts.values[kernelLabels{c.name, kernel}]
		if at == nil {
			at = n.counts.other()
		}
		c.promoted[kernel] = at
	}
	if len(c.promoted) > topKernels {
		r.Fail("%d named kernels of comm %q, at most %d", len(c.promoted), c.name, topKernels)
	}
	for range r.Each(2) {
		kernel := process.RestoreLabel(r)
		c.waiting[kernel] = r.Uint()
	}
	if n.waiting += len(c.waiting); len(c.promoted) == topKernels {
		n.waiting -= len(c.waiting)
		c.waiting = nil
	}
}
