package producer

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// reader reads records from the rings and hands them to the translator. One goroutine uses it.
type reader struct {
	control    *bpf.Ring
	bulk       []*bpf.Ring // the last is the tensor ring
	epoll      *os.File    // of all rings, in Go's own poller: no thread blocks
	waiting    syscall.RawConn
	pending    []uint64 // up to where to read each bulk ring in this round
	translator *translator
	metrics    *metrics
	gomaxprocs gomaxprocs
}

// open opens all rings. After an error the reader is to be closed, too.
func (r *reader) open(tap *bpf.Tap) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(epoll, true)
		r.epoll = os.NewFile(uintptr(epoll), "epoll")
	}
	if err == nil {
		r.waiting, err = r.epoll.SyscallConn()
	}
	if err != nil {
		return fmt.Errorf("create epoll: %w", err)
	}
	if r.control, err = r.ring(epoll, tap.Control); err != nil {
		return fmt.Errorf("open control ring: %w", err)
	}
	for i, m := range append(slices.Clone(tap.Bulk), tap.Tensors) {
		ring, err := r.ring(epoll, m)
		if err != nil {
			return fmt.Errorf("open ring %d: %w", i+1, err)
		}
		r.bulk = append(r.bulk, ring)
	}
	r.pending = make([]uint64, len(r.bulk))
	return nil
}

// ring opens a ring and adds it to the epoll edge-triggered. Records arrive without wake-ups, so a level would stay set
// and wait would spin.
func (r *reader) ring(epoll int, m *ebpf.Map) (*bpf.Ring, error) {
	ring, err := bpf.OpenRing(m)
	if err != nil {
		return nil, err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(m.FD())}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, m.FD(), &event); err != nil {
		ring.Close()
		return nil, fmt.Errorf("wait for it: %w", err)
	}
	return ring, nil
}

func (r *reader) close() {
	if r.control != nil {
		r.control.Close()
	}
	for _, ring := range r.bulk {
		ring.Close()
	}
	_ = r.epoll.Close()
}

// wait returns when Linux forces a wake-up, or after the timeout.
func (r *reader) wait(timeout time.Duration) {
	_ = r.epoll.SetReadDeadline(time.Now().Add(timeout))
	_ = r.waiting.Read(func(fd uintptr) bool { // the only error is the deadline
		var events [8]unix.EpollEvent
		n, _ := unix.EpollWait(int(fd), events[:], 0)
		return n > 0
	})
}

// drain reads the records that are in the rings now and returns their number. It reads the control ring first, to its
// end, and the others only up to where they stood before: so a launch always finds the name, context and thread that
// were recorded before it.
func (r *reader) drain() int {
	now := bootTime()
	r.translator.begin(now)
	fill := fillOf(r.control)
	for i, ring := range r.bulk {
		r.pending[i] = ring.Written()
		fill = max(fill, fillOf(ring))
	}
	r.metrics.ringFill.Store(fill)
	r.gomaxprocs.adjust(fill, now)
	n := r.readTo(r.control, r.control.Written())
	for i, ring := range r.bulk {
		n += r.readTo(ring, r.pending[i])
	}
	r.translator.finish()
	return n
}

// fillOf returns a ring's fill in per mille.
func fillOf(ring *bpf.Ring) uint64 {
	return uint64(1000 * ring.Available() / ring.Size())
}

// freeEvery is the number of records after which Linux gets their room back; each time a cache line moves between CPUs.
const freeEvery = 64

// readTo translates a ring's records up to a position and returns their number.
func (r *reader) readTo(ring *bpf.Ring, end uint64) (n int) {
	for raw := ring.Next(end); raw != nil; raw = ring.Next(end) {
		r.translator.handle(raw)
		if n++; n%freeEvery == 0 {
			ring.Free()
		}
	}
	ring.Free()
	return n
}

// gomaxprocs asks for a second thread of Go while rings fill: one thread publishes while the other reads. On a quiet
// host two threads would only wake each other.
type gomaxprocs struct {
	set   func(n int) // may be nil
	two   bool
	until schema.KTime
}

const (
	busyFill = 500 // per mille of a ring
	busyFor  = schema.KTime(time.Second)
)

// adjust takes the fill of the fullest ring.
func (g *gomaxprocs) adjust(fill uint64, now schema.KTime) {
	if fill >= busyFill {
		g.until = now + busyFor
	}
	if two := now < g.until; g.set != nil && two != g.two {
		g.two = two
		if two {
			g.set(2)
		} else {
			g.set(1)
		}
	}
}

// bootTime returns the present time of the records' clock.
func bootTime() schema.KTime { return schema.KTime(nanoseconds(unix.CLOCK_BOOTTIME)) }

func nanoseconds(clock int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts) // these clocks exist on every Linux that loads the programs
	return ts.Nano()
}

// clockOffset returns wall time minus boot time in ns. Of five samples it uses the one that took the shortest time.
func clockOffset() int64 {
	best, offset := int64(1)<<62, int64(0)
	for range 5 {
		before := nanoseconds(unix.CLOCK_BOOTTIME)
		wall := nanoseconds(unix.CLOCK_REALTIME)
		after := nanoseconds(unix.CLOCK_BOOTTIME)
		if after-before < best {
			best, offset = after-before, wall-(before+after)/2
		}
	}
	return offset
}
