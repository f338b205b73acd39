package leak

import (
	"cmp"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// maxSeries is the limit of series per metric family.
const maxSeries = 2000

// numOther is the part of maxSeries reserved for comm="other": one series per memory class.
const numOther = int(schema.NumClasses)

// other is the comm or host name of everything above maxSeries.
const other = "other"

// labels are the labels of a workload's series. They have no PID, because a counter with a PID would start at 0 with
// every restart.
type labels struct {
	hostname  string
	gpu       string // ordinal in the process's numbering; "": unknown
	uuid      string
	container string
	comm      string
	class     schema.MemClass
}

// workloadID identifies a workload. State is kept per cluster and host; labels have no cluster. The workloads of
// comm="other" belong to no host.
type workloadID struct {
	snapshot.HostID
	labels
}

func (a *workloadID) compare(b *workloadID) int {
	return cmp.Or(a.Compare(b.HostID), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.uuid, b.uuid),
		cmp.Compare(a.container, b.container), cmp.Compare(a.comm, b.comm), cmp.Compare(a.class, b.class))
}

// workload holds the counters of one command. They outlive its processes.
type workload struct {
	workloadID
	allocated, freed, unfreed uint64 // bytes
	allocs, frees             uint64
	failed                    map[failure]uint64

	rows     int    // rows of running processes that count here
	released uint64 // value of releases when rows last became 0
}

type failure struct {
	symbol string
	result uint32
}

// workloads holds at most maxSeries workloads. A new workload replaces the one that has been without a process for
// longest. If all have a process, the new one counts as other.
type workloads struct {
	index    map[workloadID]*workload
	others   [schema.NumClasses]*workload
	failures int    // number of entries of all failed maps
	unplaced uint64 // failed calls above the limit of series
	releases uint64
}

// acquire returns the workload with this id for one more row, adding it if it is new.
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

// moved reports whether a row's counters belong to another GPU than the row. Workloads of comm="other" belong to no
// GPU.
func (w *workloads) moved(r *row) bool {
	return r.counter != nil && r.counter != w.others[r.class] && r.counter.uuid != process.Label(r.uuid)
}

func (w *workloads) evict() bool {
	var oldest *workload
	for _, c := range w.index {
		if c.rows == 0 && (oldest == nil ||
			cmp.Or(cmp.Compare(c.released, oldest.released), c.compare(&oldest.workloadID)) < 0) {
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

// removeHost removes the workloads of a host without processes.
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
