package launch

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// Snapshot passes the state to yield, one section per host. Counts by kernel name are in the section of no host. The
// goroutine that calls Apply calls Snapshot.
func (h *Histogram) Snapshot(yield func(snapshot.Section) error) error {
	hosts := slices.Concat(h.processes.Hosts(), h.workloads.Hosts(), slices.Collect(maps.Keys(h.clocks)))
	return h.form().Save(&h.out, hosts, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (h *Histogram) Restore(section snapshot.Section) error { return h.form().Restore(section) }

func (h *Histogram) form() snapshot.Form {
	return snapshot.Form{Fold: "launch", Version: 1, Lock: &h.mu, Shard: h.codeShard, Host: h.codeHost}
}

func (h *Histogram) codeShard(c *snapshot.Codec) {
	h.processes.CodeShard(c)
	h.workloads.CodeOthers(c, 4, func(*process.Workload) {})
	h.byName.code(c)
	h.sizes.CodeOthers(c, 10, func(*program) {})
	h.sizes.CodeHost(c, snapshot.HostID{}, 11, func(p *program) { process.CodeLabels(c, (*string)(p)) })
}

func (h *Histogram) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	h.codeClock(c, id)
	h.workloads.CodeHost(c, id, process.MinWorkload+4, func(w *process.Workload) { w.Code(c, id) })
	h.processes.CodeHost(c, id, func(e *process.Entry[state]) { e.State.code(c, h.names) })
}

func (h *Histogram) codeClock(c *snapshot.Codec, id snapshot.HostID) {
	known := h.clocks[id] != nil
	if c.Bool(&known); !known {
		return
	}
	if c.Reading() {
		h.clocks[id] = &clock{}
	}
	c.String(&h.clocks[id].boot)
	snapshot.Uint(c, &h.clocks[id].now)
}

// Code passes over the counts.
func (l *launches) Code(c *snapshot.Codec) {
	snapshot.Uint(c, &l.kernels, &l.fromGraphs, &l.graphs, &l.partial)
}

func (s *state) code(c *snapshot.Codec, names names) {
	snapshot.Uint(c, &s.began, &s.last)
	s.other.code(c)
	s.graphs.code(c)
	snapshot.Uint(c, &s.partial, &s.recorded, &s.hostFuncs)
	s.gaps.code(c)
	snapshot.Map(c, &s.kernels, 8, strings.Compare, func(mangled *string, p **kernel) {
		c.String(mangled)
		if c.Reading() {
			*p = &kernel{name: names.lookup(*mangled)}
		}
		(*p).code(c)
	})
	snapshot.Map(c, &s.executables, 7, cmp.Compare, func(handle *uint64, p **executable) {
		snapshot.Uint(c, handle)
		if c.Reading() {
			*p = &executable{}
		}
		x := *p
		x.code(c)
		snapshot.Uint(c, &x.kernels)
		c.Bool(&x.partial)
	})
	if len(s.executables) > maxExecutables {
		c.Fail("more than %d executable graphs", maxExecutables)
	}
}

func (k *kernel) code(c *snapshot.Codec) {
	c.Bool(&k.read)
	k.tally.code(c)
	snapshot.Uint(c, &k.fromGraphs)
	snapshot.List(c, &k.shapes, 11, func(s *shape) {
		for i := range 3 {
			snapshot.Uint(c, &s.grid[i], &s.block[i])
		}
		snapshot.Uint(c, &s.sharedBytes)
		s.code(c)
	})
	if len(k.shapes) > maxShapes {
		c.Fail("more than %d shapes", maxShapes)
	}
}

// code passes over every series, and for each comm over its named kernels and the launches of its waiting kernels.
func (n *byName) code(c *snapshot.Codec) {
	n.counts.CodeOthers(c, 1, func(*kernelLabels) {})
	n.counts.CodeHost(c, snapshot.HostID{}, 3, func(l *kernelLabels) { process.CodeLabels(c, &l.comm, &l.kernel) })
	snapshot.Map(c, &n.comms, 3, strings.Compare, func(name *string, p **comm) {
		process.CodeLabels(c, name)
		if c.Reading() {
			*p = newComm(*name)
		}
		of := *p
		snapshot.Map(c, &of.promoted, 1, strings.Compare, func(kernel *string, launches **process.Count) {
			process.CodeLabels(c, kernel)
			if c.Reading() {
				*launches = n.counts.At(kernelLabels{*name, *kernel}) // its own, or the one for all above the limit
			}
		})
		snapshot.Map(c, &of.waiting, 2, strings.Compare, func(kernel *string, launches *uint64) {
			process.CodeLabels(c, kernel)
			snapshot.Uint(c, launches)
		})
		if c.Reading() {
			n.restored(c, of)
		}
	})
}

// restored completes a restored comm.
func (n *byName) restored(c *snapshot.Codec, of *comm) {
	switch k := len(of.promoted); {
	case k > topKernels:
		c.Fail("%d named kernels of comm %q, at most %d", k, of.name, topKernels)
	case k == topKernels:
		of.waiting = nil
	default:
		n.waiting += len(of.waiting)
	}
}
