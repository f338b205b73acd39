package leak

import "github.com/gputap/gputap/schema"

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
