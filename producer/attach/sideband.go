package attach

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
)

// sideband reads the perf side-band records of every CPU: what processes map, their names, and when they exec and end.
// It needs CAP_PERFMON.
type sideband struct {
	apply   func([]sideRecord)
	epoll   int      // of all rings
	gate    *os.File // an epoll of that one, in Go's own poller: no thread blocks
	waiting syscall.RawConn

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
	all, err1 := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	gate, err2 := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err := errors.Join(err1, err2, unix.SetNonblock(gate, true)); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	s := &sideband{apply: apply, rings: map[int]*sideRing{}, epoll: all, gate: os.NewFile(uintptr(gate), "epoll")}
	var err error
	if s.waiting, err = s.gate.SyscallConn(); err == nil {
		err = unix.EpollCtl(gate, unix.EPOLL_CTL_ADD, all, &unix.EpollEvent{Fd: int32(all)})
	}
	if err == nil {
		err = s.follow()
	}
	if err != nil {
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
	_ = s.gate.Close()
}

// run reads records until ctx ends. Rings follow the CPUs at each interval; run calls changed with the error when that
// starts to fail, and with nil when it works again.
func (s *sideband) run(ctx context.Context, interval time.Duration, changed func(error)) {
	incomplete := false
	stop := context.AfterFunc(ctx, func() { _ = s.gate.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for followed := time.Now(); ctx.Err() == nil; s.wait(ctx, interval) {
		s.catchUp()
		if time.Since(followed) >= interval {
			followed = time.Now()
			err := s.follow()
			if (err != nil) != incomplete {
				incomplete = err != nil
				changed(err)
			}
		}
		time.Sleep(sideRest) // while the gate is closed, or each record would wake Go's poller
	}
}

// wait returns when there are records, after the timeout, or when ctx ends.
func (s *sideband) wait(ctx context.Context, timeout time.Duration) {
	_ = s.gate.SetReadDeadline(time.Now().Add(timeout))
	if ctx.Err() != nil {
		return // run set its deadline before this one
	}
	s.wakeFor(unix.EPOLLIN)
	defer s.wakeFor(0)
	woken := false
	_ = s.waiting.Read(func(uintptr) bool { // the only error is the deadline
		ready := woken || s.filled()
		woken = true
		return ready
	})
}

// wakeFor opens the gate for epoll events, or closes it with 0.
func (s *sideband) wakeFor(events uint32) {
	_ = s.waiting.Control(func(gate uintptr) { // it fails after close
		_ = unix.EpollCtl(int(gate), unix.EPOLL_CTL_MOD, s.epoll, &unix.EpollEvent{Events: events, Fd: int32(s.epoll)})
	})
}

// filled compares the positions of the rings: a poll of a perf event clears its readiness, and Go's poller has polled
// it already.
func (s *sideband) filled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rings {
		if atomic.LoadUint64(&r.page.Data_head) != r.page.Data_tail {
			return true
		}
	}
	return false
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
