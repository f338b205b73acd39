package bpf

import (
	"math/bits"
	"os"
	"unsafe"
)

const (
	// MinRingBytes is the smallest budget: a control ring of 1 MiB, which holds 10,000 memory records or the names of
	// 490 CUDA kernels, and three bulk rings.
	MinRingBytes = 4 << 20

	// leastBulk is the least size of a bulk ring. It holds 10,900 launches. Linux wakes the reader after 4,096 of them,
	// so at 500,000 launches/s on one CPU the reader has 13 ms to start reading before a record is lost.
	leastBulk = 1 << 20

	// mostRing is the largest size of a ring. Linux accepts 2 GiB and more only with pages larger than 4 KiB.
	mostRing = 1 << 30

	// wakeEvery is the largest number of records in a bulk ring at which one of its CPUs forces a wake-up of the
	// reader. A wake-up takes 1.2 us of the traced thread, so it must be rare.
	wakeEvery = 4096
)

// division is how the rings divide a budget of bytes. All sizes are powers of two and multiples of the page size.
//
// A quarter of the budget is for the control ring, so bulk records never take its room. Each possible CPU gets its own
// bulk ring if that ring has at least leastBulk. On more CPUs, several of them share a ring and contend on its lock.
// Two CPUs that share a ring and trace as fast as possible pay 1.9 times as much for a call as two with a ring each.
type division struct {
	cpus      int // possible CPUs
	control   int // bytes of the control ring
	bulk      int // bytes of each bulk ring
	bulkRings int
	tensors   int // bytes of the tensor ring
}

// divide returns the sizes of the rings. The tensor ring has an eighth of the budget, or one page if tensors are not
// wanted: nothing writes to it then.
func divide(budget, cpus int, tensors bool) division {
	d := division{cpus: cpus, control: ringSize(budget / 4), tensors: os.Getpagesize()}
	rest := budget - d.control
	if tensors {
		d.tensors = ringSize(budget / 8)
		rest -= d.tensors
	}
	d.bulkRings = max(1, min(cpus, rest/leastBulk))
	d.bulk = ringSize(rest / d.bulkRings)
	return d
}

// ringOf returns the bulk ring of a CPU. CPUs with consecutive numbers have different rings: the scheduler keeps the
// threads of a program on CPUs close to each other, and many virtual machines have far more possible CPUs than online
// ones, which have the first numbers.
func (d division) ringOf(cpu int) int { return cpu % d.bulkRings }

// wakeEvery returns the number of bulk records after which a CPU forces a wake-up of the reader. Each CPU counts its
// own records. CPUs that share a ring divide the number, or they could fill the ring before one of them reaches it.
func (d division) wakeEvery() uint32 {
	sharing := (d.cpus + d.bulkRings - 1) / d.bulkRings
	return uint32(max(1, wakeEvery/sharing))
}

// tensorWakeEvery returns the number of tensor records after which a CPU forces a wake-up of the reader: those of a
// sixteenth of the ring, which all CPUs share. A default ring holds 47,000 records.
func (d division) tensorWakeEvery() uint32 {
	records := d.tensors / int(recordHead+unsafe.Sizeof(TensorRecord{}))
	return uint32(max(1, min(wakeEvery, records/16)))
}

// ringSize returns the largest size of a ring that is not above n, and at least a page.
func ringSize(n int) int {
	n = min(max(n, os.Getpagesize()), mostRing)
	return 1 << (bits.Len(uint(n)) - 1)
}
