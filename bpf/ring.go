package bpf

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ring reads the records of one ring where they lie, without a copy and without a lock: that is a quarter of what
// a launch costs. One goroutine uses it.
type Ring struct {
	positions []byte  // Linux's page that says how far was read
	read      *uint64 // on it
	records   []byte  // the page that says how far was written, and the ring twice in a row: no record is broken
	written   *uint64 // on it
	ring      unsafe.Pointer
	size      uint64

	at uint64 // position of the next record
}

// What the first word of a record says beside its length.
const (
	recordHead    = 8 // bytes
	recordBusy    = 1 << 31
	recordDiscard = 1 << 30
	recordLength  = recordDiscard - 1
)

// ahead is how many bytes before they are read Next asks for them: a record is found only where the one before ends, so
// that memory would be waited for again and again. It is a fifth of what a launch costs.
const ahead = 1024

// OpenRing maps a ring that nobody else reads. Linux keeps it, closed map or not, until Close.
func OpenRing(m *ebpf.Map) (*Ring, error) {
	page, size := os.Getpagesize(), int(m.MaxEntries())
	r := &Ring{size: uint64(size)}
	var err error
	if r.positions, err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map the reader's page: %w", explain(err))
	}
	if r.records, err = unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		r.Close()
		return nil, fmt.Errorf("map %d bytes: %w", size, explain(err))
	}
	r.read = (*uint64)(unsafe.Pointer(unsafe.SliceData(r.positions)))
	r.written = (*uint64)(unsafe.Pointer(unsafe.SliceData(r.records)))
	r.ring = unsafe.Pointer(&r.records[page])
	r.at = atomic.LoadUint64(r.read)
	return r, nil
}

// Size is the bytes that the ring can hold.
func (r *Ring) Size() int { return int(r.size) }

// Available is the bytes that were written and not read, heads of records and all.
func (r *Ring) Available() int { return int(r.Written() - r.at) }

// Written is the position up to which there are records: those between two positions are so many bytes.
func (r *Ring) Written() uint64 { return atomic.LoadUint64(r.written) }

// Next is the next record before a position that Written gave, nil when there is none. It lies in the ring, 8-byte
// aligned, and is valid until Free.
func (r *Ring) Next(end uint64) []byte {
	for r.at != end {
		head := unsafe.Add(r.ring, r.at&(r.size-1))
		word := atomic.LoadUint32((*uint32)(head)) // the record is written before it
		if word&recordBusy != 0 {
			runtime.Gosched() // a program is writing it at this moment; what comes behind it must wait
			continue
		}
		length := word & recordLength
		r.at += recordHead + uint64(length+7)&^7
		if r.at+ahead < end { // what is being written stays in the cache of who writes it
			prefetch(unsafe.Add(r.ring, (r.at+ahead)&(r.size-1)))
		}
		if word&recordDiscard == 0 {
			return unsafe.Slice((*byte)(unsafe.Add(head, recordHead)), length)
		}
	}
	return nil
}

// Free gives the room of all records that Next gave back to Linux.
func (r *Ring) Free() { atomic.StoreUint64(r.read, r.at) }

// Close unmaps the ring.
func (r *Ring) Close() {
	for _, mapped := range [][]byte{r.positions, r.records} {
		if mapped != nil {
			_ = unix.Munmap(mapped)
		}
	}
	r.positions, r.records = nil, nil
}
