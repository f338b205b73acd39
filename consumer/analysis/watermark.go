package analysis

import (
	"cmp"
	"slices"
	"time"
)

// Allocation is memory that was live at some moment.
type Allocation struct {
	Ptr    uint64 // address, or handle of physical memory
	Bytes  uint64
	Time   time.Time // when the call that allocated it returned
	Before bool      // it was live before the range
	*Group
}

// Peak is the most memory of a process on one GPU, and what was live then.
type Peak struct {
	GPU   GPU
	Bytes uint64
	Time  time.Time    // when it was reached for the first time
	Live  []Allocation // the largest first, of equal ones the oldest
}

// Watermark returns the peak on each GPU of a process, in the order of GPUs.
func (p *Process) Watermark() ([]Peak, error) {
	peaks, at, live := make([]Peak, len(p.GPUs)), make([]uint64, len(p.GPUs)), make([]uint64, len(p.GPUs))
	number := uint64(0) // of the change
	err := p.each(func(c *change) bool {
		number++
		gpu := p.apply(live, c)
		if p.isBefore(c) { // what was live then is known, but not what was freed before
			peaks[gpu] = Peak{Bytes: live[gpu], Time: p.wall(p.begin)}
			at[gpu] = number
			return true
		}
		if live[gpu] > peaks[gpu].Bytes {
			peaks[gpu] = Peak{Bytes: live[gpu], Time: p.wall(c.at)}
			at[gpu] = number
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	for i := range peaks {
		peaks[i].GPU = p.GPUs[i]
	}
	return peaks, p.liveAt(peaks, at)
}

// apply applies a change to the live bytes of the GPUs and returns the index of its GPU.
func (p *Process) apply(live []uint64, c *change) (gpu int) {
	gpu = p.Groups[c.group&^freed].GPU
	if c.group&freed != 0 {
		live[gpu] -= c.bytes
	} else {
		live[gpu] += c.bytes
	}
	return gpu
}

// liveAt adds to each peak what was live after the change with that number.
func (p *Process) liveAt(peaks []Peak, at []uint64) error {
	last := slices.Max(append(slices.Clone(at), 0))
	table, number := map[uint32]change{}, uint64(0)
	return p.each(func(c *change) bool {
		if number == last {
			return false
		}
		number++
		if c.group&freed != 0 {
			delete(table, c.id)
		} else {
			table[c.id] = *c
		}
		if gpu := p.Groups[c.group&^freed].GPU; at[gpu] == number {
			peaks[gpu].Live = p.list(table, gpu)
		}
		return true
	})
}

// list returns the live memory of one GPU.
func (p *Process) list(table map[uint32]change, gpu int) []Allocation {
	all := []Allocation{}
	for _, c := range table {
		if g := &p.Groups[c.group]; g.GPU == gpu {
			all = append(all, Allocation{c.ptr, c.bytes, p.wall(c.at), p.isBefore(&c), g})
		}
	}
	slices.SortFunc(all, func(a, b Allocation) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), a.Time.Compare(b.Time), cmp.Compare(a.Ptr, b.Ptr))
	})
	return all
}

// Leak is what a process had live on one GPU at the end of the range, or when it ended.
type Leak struct {
	GPU   GPU
	Bytes uint64
	Live  []Allocation // the largest first, of equal ones the oldest
}

// Leakage returns what was live at the end on each GPU of a process, in the order of GPUs.
func (p *Process) Leakage() ([]Leak, error) {
	table := map[uint32]change{}
	err := p.each(func(c *change) bool {
		if c.group&freed != 0 {
			delete(table, c.id)
		} else {
			table[c.id] = *c
		}
		return true
	})
	leaks := make([]Leak, len(p.GPUs))
	for i := range leaks {
		leaks[i] = Leak{GPU: p.GPUs[i], Live: p.list(table, i)}
		for _, a := range leaks[i].Live {
			leaks[i].Bytes += a.Bytes
		}
	}
	return leaks, err
}
