package attach

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/procfs"
)

const (
	// sidePages is the size of a ring, a power of two: about 600 records, well below the limit of locked memory.
	sidePages = 16
	// sideRest is how long records accumulate after a read: a build maps thousands of files a second, and each wake-up
	// costs more than its records.
	sideRest = 5 * time.Millisecond
	// sideWait bounds one wait for records, and so the time that run takes to end.
	sideWait = 50 * time.Millisecond
)

// sideband reads the perf side-band records of every CPU: what processes map, their names, and when they exec and end.
// It needs CAP_PERFMON.
type sideband struct {
	apply func([]sideRecord)
	epoll int // of all rings

	mu      sync.Mutex
	rings   map[int]*sideRing // by CPU
	records []sideRecord      // of one read
	scratch []byte            // a record that wraps around the end of its ring
}

// sideRing is the ring of one CPU.
type sideRing struct {
	fd     int
	memory []byte
	page   *unix.PerfEventMmapPage
	data   []byte
}

// openSideband starts to collect records. apply gets them in order of time and must not keep them. It fails where Linux
// refuses perf events.
func openSideband(apply func([]sideRecord)) (*sideband, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	s := &sideband{apply: apply, epoll: epoll, rings: map[int]*sideRing{}}
	if err := s.follow(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// follow opens the rings of CPUs that came online and closes those of CPUs that went offline.
func (s *sideband) follow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	for cpu, ring := range s.rings {
		if !slices.Contains(online, cpu) {
			ring.close()
			delete(s.rings, cpu)
		}
	}
	for _, cpu := range online {
		if s.rings[cpu] != nil {
			continue
		}
		ring, err := s.open(cpu)
		if err != nil {
			return fmt.Errorf("perf side-band of CPU %d: %w", cpu, err)
		}
		s.rings[cpu] = ring
	}
	return nil
}

func (s *sideband) open(cpu int) (*sideRing, error) {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample_type: unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask |
			unix.PerfBitSampleIDAll | unix.PerfBitWatermark | unix.PerfBitUseClockID | unix.PerfBitExcludeKernel,
		Wakeup: 1, Clockid: unix.CLOCK_BOOTTIME,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(fd, 0, (1+sidePages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("map its ring: %w", err)
	}
	header := (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0]))
	r := &sideRing{fd: fd, memory: memory, page: header, data: memory[page:]}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *sideRing) close() {
	_ = unix.Munmap(r.memory)
	_ = unix.Close(r.fd)
}

func (s *sideband) close() {
	for _, r := range s.rings {
		r.close()
	}
	_ = unix.Close(s.epoll)
}

// run reads records until ctx ends. Rings follow the CPUs at each interval; run calls changed with the error when that
// starts to fail, and with nil when it works again.
func (s *sideband) run(ctx context.Context, interval time.Duration, changed func(error)) {
	incomplete := false
	var ready [1]unix.EpollEvent
	for followed := time.Now(); ctx.Err() == nil; {
		_, _ = unix.EpollWait(s.epoll, ready[:], int(sideWait.Milliseconds())) // a signal may interrupt it
		s.catchUp()
		if time.Since(followed) >= interval {
			followed = time.Now()
			err := s.follow()
			if (err != nil) != incomplete {
				incomplete = err != nil
				changed(err)
			}
		}
		time.Sleep(sideRest)
	}
}

// catchUp applies every record that exists now. Any goroutine may call it.
func (s *sideband) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = s.records[:0]
	for _, r := range s.rings {
		head := atomic.LoadUint64(&r.page.Data_head)
		s.read(r.data, r.page.Data_tail, head)
		atomic.StoreUint64(&r.page.Data_tail, head)
	}
	if len(s.records) > 0 {
		slices.SortStableFunc(s.records, func(a, b sideRecord) int { return cmp.Compare(a.time, b.time) })
		s.apply(s.records)
	}
}

// read parses the records of a ring between two positions, which only grow. An impossible size ends it.
func (s *sideband) read(ring []byte, tail, head uint64) {
	mask := uint64(len(ring) - 1)
	for tail < head {
		offset := tail & mask
		size := uint64(binary.LittleEndian.Uint16(ring[offset+6:])) // records are a multiple of 8 bytes
		if size < sideHeader || size%8 != 0 || size > head-tail {
			return
		}
		raw := ring[offset:min(offset+size, uint64(len(ring)))]
		if uint64(len(raw)) < size {
			s.scratch = append(append(s.scratch[:0], raw...), ring[:size-uint64(len(raw))]...)
			raw = s.scratch
		}
		if r, ok := parseSide(raw); ok {
			s.records = append(s.records, r)
		}
		tail += size
	}
}

// onlineCPUs parses a list like "0-3,8".
func onlineCPUs() ([]int, error) {
	line, err := procfs.ReadLine("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	var list []int
	for part := range strings.SplitSeq(line, ",") {
		var first, last int
		switch n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n {
		case 0:
			return nil, fmt.Errorf("list CPUs: %q", line)
		case 1:
			last = first
		}
		for cpu := first; cpu <= last; cpu++ {
			list = append(list, cpu)
		}
	}
	return list, nil
}
