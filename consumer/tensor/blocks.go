package tensor

import (
	"math/bits"
	"math/rand/v2"

	"github.com/gputap/gputap/schema"
)

// block is one live block. It has 48 bytes and no pointers, so the garbage collector skips the table.
type block struct {
	ptr    uint64
	bytes  uint64
	since  schema.KTime
	chain  uint32 // next in its bucket
	prev   uint32 // neighbours in its size class
	next   uint32
	tid    uint32
	device uint32 // index into its process's devices
}

const chunkLen = 64

// blocks are the live blocks of one process, by number; 0 means no block. A bucket is the head of a chain through them:
// 4 bytes per block. The buckets grow by linear hashing, one per insertion, so no batch waits for a large rebuild. The
// hash has a random seed, because a program may choose its addresses. Neither state nor reports depend on the seed.
type blocks struct {
	chunks []*[chunkLen]block
	used   uint32 // highest number in use so far
	free   uint32 // first number of the free list, linked by next
	heads  []uint32
	count  int
	seed   uint64
}

func (s *blocks) at(i uint32) *block { return &s.chunks[i/chunkLen][i%chunkLen] }

// get returns a number whose block is zero.
func (s *blocks) get() uint32 {
	if i := s.free; i != 0 {
		s.free = s.at(i).next
		*s.at(i) = block{}
		return i
	}
	s.used++
	if int(s.used/chunkLen) >= len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkLen]block))
	}
	return s.used
}

func (s *blocks) put(i uint32) {
	s.at(i).next = s.free
	s.free = i
}

// bucket returns the bucket of an address among n: the low bits of its hash, one bit fewer if that bucket does not
// exist yet.
func (s *blocks) bucket(ptr uint64, n int) uint32 {
	upper, lower := bits.Mul64(ptr, s.seed)
	hash := uint32(upper ^ lower>>32)
	mask := uint32(1)<<bits.Len32(uint32(n-1)) - 1
	if b := hash & mask; b < uint32(n) {
		return b
	}
	return hash & (mask >> 1)
}

// find returns the link to the block at ptr, which holds its number; nil without such a block. Links are valid until
// the next insert or remove.
func (s *blocks) find(ptr uint64) *uint32 {
	if s.count == 0 {
		return nil
	}
	for link := &s.heads[s.bucket(ptr, len(s.heads))]; *link != 0; {
		b := s.at(*link)
		if b.ptr == ptr {
			return link
		}
		link = &b.chain
	}
	return nil
}

// insert adds block i. Its address must be new.
func (s *blocks) insert(i uint32) {
	if s.seed == 0 {
		s.seed = rand.Uint64() | 1<<63 | 1
	}
	if s.count >= len(s.heads) {
		s.split()
	}
	b := s.at(i)
	head := &s.heads[s.bucket(b.ptr, len(s.heads))]
	b.chain, *head = *head, i
	s.count++
}

// split adds a bucket and moves the blocks that belong there.
func (s *blocks) split() {
	added := len(s.heads)
	s.heads = append(s.heads, 0)
	if added == 0 {
		return
	}
	mask := uint32(1)<<bits.Len32(uint32(added)) - 1
	link := &s.heads[uint32(added)&(mask>>1)]
	for *link != 0 {
		b := s.at(*link)
		if s.bucket(b.ptr, added+1) != uint32(added) {
			link = &b.chain
			continue
		}
		i := *link
		*link = b.chain
		b.chain, s.heads[added] = s.heads[added], i
	}
}

// remove removes the block behind a link from its bucket.
func (s *blocks) remove(link *uint32) {
	*link = s.at(*link).chain
	s.count--
}

// sizeOf returns the size class of a block, eight per power of two: blocks of one class differ by less than an eighth.
func sizeOf(bytes uint64) int {
	if bytes < 8 {
		return int(bytes)
	}
	octave := bits.Len64(bytes) - 1
	return (octave-2)*8 + int(bytes>>(octave-3)&7)
}

// sizes are the heads of the lists of blocks of one GPU by size class, the newest first. It grows on demand.
type sizes []uint32

func (z *sizes) of(bytes uint64) *uint32 {
	size := sizeOf(bytes)
	if missing := size + 1 - len(*z); missing > 0 {
		*z = append(*z, make([]uint32, missing)...)
	}
	return &(*z)[size]
}

// push puts block i at the front of the list with this head.
func (s *blocks) push(head *uint32, i uint32) {
	b := s.at(i)
	b.prev, b.next = 0, *head
	if *head != 0 {
		s.at(*head).prev = i
	}
	*head = i
}

func (s *blocks) unlink(head *uint32, i uint32) {
	b := s.at(i)
	if b.prev != 0 {
		s.at(b.prev).next = b.next
	} else {
		*head = b.next
	}
	if b.next != 0 {
		s.at(b.next).prev = b.prev
	}
}
