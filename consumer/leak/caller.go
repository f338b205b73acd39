package leak

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// numOther is the part of process.MaxSeries reserved for comm="other": one series per memory class.
const numOther = int(schema.NumClasses)

// workloadID identifies the counters of a workload in one memory class.
type workloadID struct {
	process.Workload
	class schema.MemClass
}

func (a *workloadID) compare(b *workloadID) int {
	return cmp.Or(a.Compare(b.Workload), cmp.Compare(a.class, b.class))
}

// page returns the id as metrics show it.
func (a *workloadID) page() workloadID { return workloadID{a.Page(), a.class} }

// otherID identifies everything above the limit of series.
func otherID(class schema.MemClass) workloadID { return workloadID{process.Workload{}.Other(), class} }

// workload holds the counters of one command. They outlive its processes.
type workload struct {
	workloadID
	allocated, freed, unfreed uint64 // bytes
	allocs, frees             uint64
	failed                    map[failure]uint64

	rows     int    // rows of running processes that count here
	released uint64 // value of releases when rows last became 0
}

// add adds the counters of another workload, without its failed calls.
func (c *workload) add(more *workload) {
	c.allocated += more.allocated
	c.freed += more.freed
	c.unfreed += more.unfreed
	c.allocs += more.allocs
	c.frees += more.frees
}

type failure struct {
	symbol string
	result uint32
}

// workloads holds at most process.MaxSeries workloads. A new workload replaces the one that has been without a process
// for longest. If all have a process, the new one counts as other.
type workloads struct {
	index    map[workloadID]*workload
	others   [schema.NumClasses]*workload
	failures int    // number of entries of all failed maps
	unplaced uint64 // failed calls above the limit of series
	releases uint64
	above    uint64 // times that a row counted as other; not saved
}

// acquire returns the workload with this id for one more row, adding it if it is new.
func (w *workloads) acquire(id workloadID) *workload {
	c := w.index[id]
	switch {
	case c != nil:
	case len(w.index) >= process.MaxSeries-numOther && !w.evict():
		w.above++
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
		w.others[class] = &workload{workloadID: otherID(class)}
	}
	return w.others[class]
}

// all returns every workload, those of comm="other" included.
func (w *workloads) all() []*workload {
	others := slices.DeleteFunc(slices.Clone(w.others[:]), func(c *workload) bool { return c == nil })
	return slices.AppendSeq(others, maps.Values(w.index))
}

func (w *workloads) release(c *workload) {
	w.releases++
	c.rows--
	c.released = w.releases
}

// moved reports whether a row's counters belong to another GPU than the row. Workloads of comm="other" belong to no
// GPU.
func (w *workloads) moved(r *row) bool {
	return r.counter != nil && r.counter != w.others[r.class] && r.counter.UUID != process.Label(r.uuid)
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

// fail counts failed calls.
func (w *workloads) fail(c *workload, f failure, calls uint64) {
	if _, known := c.failed[f]; !known {
		if w.failures >= process.MaxSeries-1 {
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

// threads assigns a slot to every thread that made live memory. It reuses the slots of threads without live memory,
// because a server may start a thread per request for months.
type threads struct {
	slots []thread
	index map[threadID]uint32
	free  []uint32
	sweep int // reclaim unused slots when this many are in use
}

type threadID struct {
	process *proc
	tid     uint32
	comm    string
}

type thread struct {
	threadID
	live  uint32 // live allocations that the thread made
	gpu   amount // the part of them that is GPU memory
	batch uint64 // last batch that named the thread
}

const minThreads = 1024

func newThreads() threads { return threads{index: map[threadID]uint32{}, sweep: minThreads} }

// slot returns the slot of a thread that the batch names. It stays valid during that batch.
func (t *threads) slot(id threadID, batch uint64) uint32 {
	i, ok := t.index[id]
	if !ok {
		i = t.take(batch)
		t.slots[i] = thread{threadID: id}
		t.index[id] = i
	}
	t.slots[i].batch = batch
	return i
}

func (t *threads) take(batch uint64) uint32 {
	if len(t.index) >= t.sweep {
		for id, i := range t.index {
			if s := &t.slots[i]; s.live == 0 && s.batch != batch {
				delete(t.index, id)
				*s = thread{}
				t.free = append(t.free, i)
			}
		}
		t.sweep = max(minThreads, 2*len(t.index))
	}
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	t.slots = append(t.slots, thread{})
	return uint32(len(t.slots) - 1)
}

// origins numbers the calls that the whole fleet makes, a few dozen. Calls above 255 share the number 0.
type origins struct {
	rows  []schema.CallRef
	index map[schema.CallRef]uint8
}

func newOrigins() origins {
	return origins{rows: make([]schema.CallRef, 1), index: map[schema.CallRef]uint8{}}
}

func (o *origins) number(ref schema.CallRef) uint8 {
	i, known := o.index[ref]
	if !known && len(o.rows) < 256 {
		i = uint8(len(o.rows))
		o.rows = append(o.rows, ref)
		o.index[ref] = i
	}
	return i
}
