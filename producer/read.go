package producer

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// reader turns ring records into events of the open batches. One goroutine uses it.
type reader struct {
	control  *bpf.Ring
	bulk     []*bpf.Ring
	epoll    *os.File // all rings, waited for by Go's own poller: no thread blocks
	waiting  syscall.RawConn
	known    *processes
	batches  *batcher
	metrics  *metrics
	pending  []uint64 // up to where to read each bulk ring in this round
	now      schema.KTime
	calls    [schema.NumKinds][]callIndex
	learned  uint64 // grows with all that may change what a record becomes
	launches [256]knownLaunch
	memories [16]knownMemory
	wanted   [schema.NumKinds]bool
	counted  [schema.NumOps]uint64 // events of this round
	cards    []card
	layout   handleLayout
	threads  threads
}

// callIndex is a call's index in the open batch's dictionary.
type callIndex struct {
	generation uint64
	index      uint32
}

func newReader(tap *bpf.Tap, known *processes, batches *batcher, wanted features, m *metrics) (*reader, error) {
	r := &reader{known: known, batches: batches, metrics: m, pending: make([]uint64, len(tap.Bulk)), cards: cards(driverDir)}
	for kind := range r.wanted {
		r.wanted[kind] = wanted.kinds[schema.Kind(kind)]
	}
	for kind := range r.calls {
		r.calls[kind] = make([]callIndex, len(schema.Calls))
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	r.epoll = os.NewFile(uintptr(epoll), "epoll")
	if r.waiting, err = r.epoll.SyscallConn(); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if r.control, err = r.ring(epoll, tap.Control); err != nil {
		r.close()
		return nil, fmt.Errorf("open control ring: %w", err)
	}
	for cpu, m := range tap.Bulk {
		ring, err := r.ring(epoll, m)
		if err != nil {
			r.close()
			return nil, fmt.Errorf("open ring of CPU %d: %w", cpu, err)
		}
		r.bulk = append(r.bulk, ring)
	}
	return r, nil
}

// ring opens a ring and waits on it edge-triggered: records come without wake-ups, so a level would
// stay set and the wait would spin.
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

// wait returns when Linux forces a wake-up, or after at most the given time.
func (r *reader) wait(most time.Duration) {
	_ = r.epoll.SetReadDeadline(time.Now().Add(most))
	_ = r.waiting.Read(func(fd uintptr) bool { // its error is the deadline
		var events [8]unix.EpollEvent
		n, _ := unix.EpollWait(int(fd), events[:], 0)
		return n > 0
	})
}

// drain reads what is in the rings now and returns the number of records. The control ring is
// read first, to its end, and the others only up to where they stood before: so a launch always
// finds the name, context and thread that were told before it.
func (r *reader) drain() int {
	r.now = bootTime()
	r.learned++ // between rounds names are read, and processes forgotten
	fill := used(r.control)
	for i, ring := range r.bulk {
		r.pending[i] = ring.Written()
		fill = max(fill, used(ring))
	}
	r.metrics.ringFill.Store(fill)
	r.threads.use(fill, r.now)
	n := r.readTo(r.control, r.control.Written())
	for i, ring := range r.bulk {
		n += r.readTo(ring, r.pending[i])
	}
	for op, n := range r.counted {
		if n > 0 {
			r.metrics.events[op].Add(n)
		}
	}
	clear(r.counted[:])
	return n
}

// used is a ring's fill in per mille.
func used(ring *bpf.Ring) uint64 {
	return uint64(1000 * ring.Available() / ring.Size())
}

// freeEvery is after how many records Linux gets their room back: each time a cache line goes from CPU to CPU.
const freeEvery = 64

// readTo handles a ring's records up to a position and returns their number.
func (r *reader) readTo(ring *bpf.Ring, end uint64) (n int) {
	for raw := ring.Next(end); raw != nil; raw = ring.Next(end) {
		r.handle(raw)
		if n++; n%freeEvery == 0 {
			ring.Free()
		}
	}
	ring.Free()
	return n
}

func (r *reader) handle(raw []byte) {
	head := bpf.HeadOf(raw)
	if head == nil || int(head.Call) >= len(schema.Calls) || head.Type != bpf.RecordThread && head.Type != recordTypes[head.Call] {
		r.metrics.malformed.Add(1)
		return
	}
	switch head.Type {
	case bpf.RecordLaunch:
		if l := bpf.As[bpf.LaunchRecord](raw); l != nil {
			r.launch(l)
			return
		}
	case bpf.RecordMemory:
		if m := bpf.As[bpf.MemoryRecord](raw); m != nil {
			r.memory(m)
			return
		}
	case bpf.RecordCopy:
		if c := bpf.As[bpf.CopyRecord](raw); c != nil {
			r.copy(c)
			return
		}
	case bpf.RecordThread:
		if t := bpf.As[bpf.ThreadRecord](raw); t != nil {
			r.learned++
			r.known.announce(t)
			return
		}
	case bpf.RecordEnd:
		if e := bpf.As[bpf.ThreadRecord](raw); e != nil {
			r.learned++
			r.end(e)
			return
		}
	case bpf.RecordName:
		if n := bpf.As[bpf.NameRecord](raw); n != nil {
			r.learned++
			r.known.thread(&n.Head).process.name(n, &r.layout)
			return
		}
	case bpf.RecordDevice:
		if d := bpf.As[bpf.DeviceRecord](raw); d != nil {
			r.learned++
			r.known.thread(&d.Head).process.devices.learn(d, r.cards)
			return
		}
	case bpf.RecordSync:
		if s := bpf.As[bpf.SyncRecord](raw); s != nil {
			r.sync(s)
			return
		}
	case bpf.RecordArray:
		if a := bpf.As[bpf.ArrayRecord](raw); a != nil {
			r.array(a)
			return
		}
	case bpf.RecordGraph:
		if g := bpf.As[bpf.GraphRecord](raw); g != nil {
			r.known.thread(&g.Head).process.graphs.apply(g)
			return
		}
	case bpf.RecordCoverage:
		if c := bpf.As[bpf.CoverageRecord](raw); c != nil {
			p := r.known.thread(&c.Head).process
			p.coverage.note(c, p.PID, r.known.libraries)
			return
		}
	}
	r.metrics.malformed.Add(1)
}
