package launch

import (
	"cmp"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

const (
	topKernels = 20      // series per comm, not counting other and unknown
	maxWaiting = 100_000 // kernels without a series whose launches are remembered
)

// byName counts launches by comm and kernel label. A kernel keeps its series forever, so the price of a series rises:
// series k of a comm goes to a kernel with 2^k launches. The first kernels of a program get a series at once, but the
// kernels of its start-up cannot take all of them.
type byName struct {
	counts  process.Series[kernelLabels, process.Count, *process.Count]
	comms   map[string]*comm
	waiting int // entries in the waiting maps of all comms
}

// kernelLabels are the labels of a series. It belongs to no host.
type kernelLabels struct{ comm, kernel string }

// Owner returns no host.
func (kernelLabels) Owner() snapshot.HostID { return snapshot.HostID{} }

// Other returns the labels of everything above the limit of series.
func (kernelLabels) Other() kernelLabels { return kernelLabels{other, other} }

// Page returns the labels, because metrics show them unchanged.
func (l kernelLabels) Page() kernelLabels { return l }

// Compare orders by comm, then kernel.
func (l kernelLabels) Compare(to kernelLabels) int {
	return cmp.Or(cmp.Compare(l.comm, to.comm), cmp.Compare(l.kernel, to.kernel))
}

type comm struct {
	name     string
	promoted map[string]*process.Count
	waiting  map[string]uint64 // launches of kernels without a series; nil once all series are taken
}

func newComm(name string) *comm {
	return &comm{name: name, promoted: map[string]*process.Count{}, waiting: map[string]uint64{}}
}

func newByName() byName {
	return byName{counts: process.NewSeries[kernelLabels, process.Count](1), comms: map[string]*comm{}}
}

// comm returns the counts of a comm. The comms above the limit share one.
func (n *byName) comm(name string) *comm {
	if c := n.comms[name]; c != nil {
		return c
	}
	if len(n.comms) >= process.MaxSeries {
		name = other
	}
	c := n.comms[name]
	if c == nil {
		c = newComm(name)
		n.comms[name] = c
	}
	return c
}

// add counts launches of one kernel.
func (n *byName) add(c *comm, kernel string, launches uint64) {
	at := c.promoted[kernel]
	switch {
	case at != nil:
	case kernel == unknown:
		at = n.counts.At(kernelLabels{c.name, unknown})
	case n.promote(c, kernel, launches):
		at = c.promoted[kernel]
	default:
		at = n.counts.At(kernelLabels{c.name, other})
	}
	*at += process.Count(launches)
}

// promote gives a kernel a series if one is left and the kernel has enough launches, and reports whether it did.
func (n *byName) promote(c *comm, kernel string, launches uint64) bool {
	if c.waiting == nil {
		return false
	}
	before, known := c.waiting[kernel]
	waiting, earned := len(c.waiting), before+launches >= 1<<len(c.promoted)
	switch {
	case earned:
		delete(c.waiting, kernel)
		c.promoted[kernel] = n.counts.At(kernelLabels{c.name, kernel})
	case known || n.waiting < maxWaiting:
		c.waiting[kernel] = before + launches
	}
	if len(c.promoted) == topKernels {
		c.waiting = nil
	}
	n.waiting += len(c.waiting) - waiting
	return earned
}
