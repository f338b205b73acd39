package launch

const (
	topKernels = 20      // series per comm, not counting other and unknown
	maxWaiting = 100_000 // kernels without a series whose launches are remembered
)

// byName counts launches by comm and kernel label. A kernel keeps its series forever, so the price of a series rises:
// series k of a comm goes to a kernel with 2^k launches. The first kernels of a program get a series at once, but the
// kernels of its start-up cannot take all of them.
type byName struct {
	counts  series[kernelLabels, uint64]
	comms   map[string]*comm
	waiting int // entries in the waiting maps of all comms
}

type kernelLabels struct{ comm, kernel string }

type comm struct {
	name     string
	promoted map[string]*uint64
	waiting  map[string]uint64 // launches of kernels without a series; nil once all series are taken
	unnamed  *uint64
	others   *uint64
}

func newByName() byName {
	return byName{counts: newSeries[kernelLabels, uint64](kernelLabels{other, other}), comms: map[string]*comm{}}
}

// comm returns the counts of a comm. The comms above the limit share one.
func (n *byName) comm(name string) *comm {
	if c := n.comms[name]; c != nil {
		return c
	}
	if len(n.comms) >= maxSeries {
		name = other
	}
	c := n.comms[name]
	if c == nil {
		c = &comm{name: name, promoted: map[string]*uint64{}, waiting: map[string]uint64{}}
		n.comms[name] = c
	}
	return c
}

// add counts launches of one kernel.
func (n *byName) add(c *comm, kernel string, launches uint64) {
	if at := c.promoted[kernel]; at != nil {
		*at += launches
		return
	}
	switch {
	case kernel == unknown:
		*n.fixedSeries(&c.unnamed, c, unknown) += launches
	case n.promote(c, kernel, launches):
		*c.promoted[kernel] += launches
	default:
		*n.fixedSeries(&c.others, c, other) += launches
	}
}

// promote gives a kernel a series if one is left and the kernel has enough launches, and reports whether it did.
func (n *byName) promote(c *comm, kernel string, launches uint64) bool {
	if c.waiting == nil {
		return false
	}
	before, known := c.waiting[kernel]
	if before+launches < 1<<len(c.promoted) {
		if known || n.waiting < maxWaiting {
			c.waiting[kernel] = before + launches
		}
		if !known && n.waiting < maxWaiting {
			n.waiting++
		}
		return false
	}
	if known {
		delete(c.waiting, kernel)
		n.waiting--
	}
	c.promoted[kernel] = n.counts.at(kernelLabels{c.name, kernel})
	if len(c.promoted) == topKernels {
		n.waiting -= len(c.waiting)
		c.waiting = nil
	}
	return true
}

// fixedSeries returns the series of a fixed name, adding it on first use.
func (n *byName) fixedSeries(at **uint64, c *comm, kernel string) *uint64 {
	if *at == nil {
		*at = n.counts.at(kernelLabels{c.name, kernel})
	}
	return *at
}
