package leak

import (
	"github.com/gputap/gputap/schema"
)

// touched is how many events are looked ahead at once; manyLive is from how many live allocations on a process's are in no
// cache, whatever was applied last.
const prefetchEvents, manyLive = 256, 1 << 15

// touch reads what some events will look up: many reads wait for memory together, where events that are applied one
// after the other each wait two or three times. Of a host of which nothing was heard for a while nothing is in a cache.
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
		ahead[i] = a.next // as a free will
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
