package leak

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// maxSeries bounds each metric family.
const maxSeries = 2000

// numOther is the series of a family that are kept for what exceeds it: one a memory class.
const numOther = int(schema.NumClasses)

// other is the comm, or the host name, of what exceeds maxSeries.
const other = "other"

// labels are what a workload's series carry: no PID, for a counter with a PID starts anew with
// every restart.
type labels struct {
	hostname  string
	gpu       string // ordinal in the process's numbering; "" unknown
	uuid      string
	container string
	comm      string
	class     schema.MemClass
}

// workload counts what the processes of one command did, for ever: processes come and go below it.
type workload struct {
	labels
	allocated, freed, unfreed uint64 // bytes
	allocs, frees             uint64
	failed                    map[failure]uint64

	rows     int    // rows of running processes that count here
	released uint64 // when the last of them went, in releases
}

type failure struct {
	symbol string
	result uint32
}

// workloads keeps at most maxSeries workloads. A new one that finds no place takes that of the one
// longest without a process; when all have one, it counts as other.
type workloads struct {
	index    map[labels]*workload
	failures int    // entries of all failed maps
	unplaced uint64 // failed calls for which no entry was left
	releases uint64
}

func (w *workloads) acquire(l labels) *workload {
	c := w.index[l]
	if c == nil {
		if len(w.index) >= maxSeries-numOther && !w.evict() {
			l = labels{comm: other, class: l.class}
			c = w.index[l]
		}
		if c == nil {
			c = &workload{labels: l}
			w.index[l] = c
		}
	}
	c.rows++
	return c
}

func (w *workloads) release(c *workload) {
	w.releases++
	c.rows--
	c.released = w.releases
}

func (w *workloads) evict() bool {
	var oldest *workload
	for _, c := range w.index {
		if c.rows == 0 && c.comm != other && (oldest == nil || c.released < oldest.released) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	w.failures -= len(oldest.failed)
	delete(w.index, oldest.labels)
	return true
}

// fail counts a failed call.
func (w *workloads) fail(c *workload, symbol string, result uint32) {
	f := failure{process.Label(symbol), result}
	if _, known := c.failed[f]; !known {
		if w.failures >= maxSeries-1 {
			w.unplaced++
			return
		}
		if c.failed == nil {
			c.failed = map[failure]uint64{}
		}
		w.failures++
	}
	c.failed[f]++
}
