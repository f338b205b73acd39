package leak

// threads gives every thread that made live memory a slot. Slots of threads without live memory
// are reused: a server may start a thread per request for months.
type threads struct {
	slots []thread
	index map[threadID]uint32
	free  []uint32
	sweep int // sweep when this many slots are taken
}

type threadID struct {
	process *proc
	tid     uint32
	comm    string
}

type thread struct {
	threadID
	live  uint32 // allocations it made that are live
	gpu   amount // of them, GPU memory
	batch uint64 // last batch that named it
}

const minThreads = 1024

func newThreads() threads { return threads{index: map[threadID]uint32{}, sweep: minThreads} }

// slot is the number of a thread that batch names; it stays valid during that batch.
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
