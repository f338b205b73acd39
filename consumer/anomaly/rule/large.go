package rule

import (
	"cmp"

	"github.com/gputap/gputap/consumer/snapshot"
)

// LargeBytes is the least size of a large allocation. Rules see these one by one, and know whether they live.
const LargeBytes = 1 << 20

// maxEntries limits the large allocations of all processes together.
const maxEntries = 1 << 20

// large is the live large allocations of one process by address, or by handle with the highest bit set. It does not
// follow references: physical memory that outlives the release of its handle is missing, and memory that ended with its
// context stays until the process ends.
type large map[uint64]block

type block struct {
	bytes uint64
	gpu   int32
}

// Handle is the Key of physical memory.
const Handle = 1 << 63

// Allocate adds a large allocation. It does nothing if there are too many.
func (s *Set) Allocate(p *Process, key, bytes uint64, gpu int) {
	of := &p.State
	s.Free(p, key)
	if s.entries >= maxEntries {
		return
	}
	if of.large == nil {
		of.large = large{}
	}
	of.large[key] = block{bytes, int32(gpu)}
	of.gpus[gpu].live += bytes
	s.entries++
}

// Free removes a large allocation, and reports whether there was one.
func (s *Set) Free(p *Process, key uint64) bool {
	of := &p.State
	b, ok := of.large[key]
	if !ok {
		return false
	}
	delete(of.large, key)
	of.gpus[b.gpu].live -= b.bytes
	s.entries--
	return true
}

// Release empties the table of a process: its image ended, or it is forgotten.
func (s *Set) Release(p *Process) {
	s.entries -= len(p.State.large)
	p.State.large = nil
	for i := range p.State.gpus {
		p.State.gpus[i].live = 0
	}
}

// Restored counts the entries of a process that was restored.
func (s *Set) Restored(p *Process) { s.entries += len(p.State.large) }

func (l *large) code(c *snapshot.Codec, gpus int) {
	all := (map[uint64]block)(*l)
	snapshot.Map(c, &all, 3, cmp.Compare, func(key *uint64, b *block) {
		snapshot.Uint(c, key)
		snapshot.Uint(c, &b.bytes)
		gpu := int(b.gpu)
		c.Below(&gpu, gpus)
		b.gpu = int32(gpu)
	})
	*l = all
}
