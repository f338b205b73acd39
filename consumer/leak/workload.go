package leak

import (
	"cmp"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
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

// workloadID is what a workload is kept under: labels do not tell clusters apart, and state does. No
// host owns what counts as other.
type workloadID struct {
	snapshot.HostID
	labels
}

func (a *workloadID) compare(b *workloadID) int {
	return cmp.Or(a.Compare(b.HostID), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.uuid, b.uuid),
		cmp.Compare(a.container, b.container), cmp.Compare(a.comm, b.comm), cmp.Compare(a.class, b.class))
}

// workload counts what the processes of one command did, for ever: processes come and go below it.
type workload struct {
	workloadID
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
	index    map[workloadID]*workload
	others   [schema.NumClasses]*workload
	failures int    // entries of all failed maps
	unplaced uint64 // failed calls for which no entry was left
	releases uint64
}

// acquire gives the workload of a row that counts there from now on.
func (w *workloads) acquire(id workloadID) *workload {
	c := w.index[id]
	switch {
	case c != nil:
	case len(w.index) >= maxSeries-numOther && !w.evict():
		c = w.other(id.class)
	default:
		c = &workload{workloadID: id}
		w.index[id] = c
	}
	c.rows++
	return c
}

func (w *workloads) other(class schema.MemClass) *workload {
	if w.others[class] == nil {
		w.others[class] = &workload{workloadID: workloadID{labels: labels{comm: other, class: class}}}
	}
	return w.others[class]
}

func (w *workloads) release(c *workload) {
	w.releases++
	c.rows--
	c.released = w.releases
}

// moved reports whether a row counts as on another GPU than it turned out to be on. What counts as other is on none.
func (w *workloads) moved(r *row) bool {
	return r.counter != nil && r.counter != w.others[r.class] && r.counter.uuid != process.Label(r.uuid)
}

func (w *workloads) evict() bool {
	var oldest *workload
	for _, c := range w.index {
		if c.rows == 0 && (oldest == nil || cmp.Or(cmp.Compare(c.released, oldest.released), c.compare(&oldest.workloadID)) < 0) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	w.remove(oldest)
	return true
}

func (w *workloads) remove(c *workload) {
	w.failures -= len(c.failed)
	delete(w.index, c.workloadID)
}

// forget lets go of the workloads of a host that has no processes any more.
func (w *workloads) removeHost(host snapshot.HostID) {
	for id, c := range w.index {
		if id.HostID == host {
			w.remove(c)
		}
	}
}

// fail counts a failed call.
func (w *workloads) fail(c *workload, symbol string, result uint32) {
	w.addFailed(c, failure{process.Label(symbol), result}, 1)
}

func (w *workloads) addFailed(c *workload, f failure, calls uint64) {
	if _, known := c.failed[f]; !known {
		if w.failures >= maxSeries-1 {
			w.unplaced += calls
			return
		}
		if c.failed == nil {
			c.failed = map[failure]uint64{}
		}
		w.failures++
	}
	c.failed[f] += calls
}
