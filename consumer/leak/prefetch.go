package leak

import (
	"github.com/gputap/gputap/schema"
)

// prefetchEvents is how many events are prefetched at once. A process with at least manyLive allocations does not fit
// any CPU cache.
const (
	prefetchEvents = 256
	manyLive       = 1 << 15
)

// prefetch reads the memory that the next events will look up. These reads wait for memory together; events that are
// applied one by one would each wait two or three times. It pays off for hosts whose state is not in any CPU cache.
func (t *Tracker) prefetch(b *schema.Batch, from, to int) {
	threads, keys, read := b.Thread(), b.Ptr(), uint32(0)
	ahead := t.in.ahead[:0]
	for i := from; i < to; i++ {
		first := uint32(0)
		if x := &t.in.procs[threads.At(i)].State.addresses; x.count > 0 {
			first = x.heads[x.bucket(keys.At(i), len(x.heads))]
		}
		ahead = append(ahead, first)
	}
	t.in.ahead = ahead
	for i, first := range ahead {
		if first == 0 {
			continue
		}
		a := t.slab.at(first)
		ahead[i] = a.next // free reads the next entry
		if a.key != keys.At(from+i) {
			ahead[i] = a.chain
		}
		read += a.prev
	}
	for _, next := range ahead {
		if next != 0 {
			read += t.slab.at(next).prev
		}
	}
	t.in.sink = read
}
