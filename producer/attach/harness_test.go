//go:build bpf

package attach

import (
	"context"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// host attaches probes and reads the control ring itself. It never scans again by itself: its news come from
// side-band records.
type host struct {
	*Probes
	tap     *bpf.Tap
	control *bpf.Ring
	seen    map[uint32]*seen // by pid
	stop    func()
}

// seen counts the records of one process.
type seen struct {
	start                schema.KTime
	late, announced      bool
	contexts             int
	allocs, frees, exits int
	onGPU                bool // a context was seen before each allocation
}

// newHost attaches the host's libraries, the stub if none are named.
func newHost(t testing.TB, libraries ...string) *host {
	t.Helper()
	return newHostFor(t, libraries, schema.KindMemory)
}

// newHostFor attaches the calls that the events of some kinds need.
func newHostFor(t testing.TB, libraries []string, kinds ...schema.Kind) *host {
	t.Helper()
	producertest.RequireBPF(t)
	if libraries == nil {
		libraries = []string{producertest.Built(t, "stub/libcuda.so.1")}
	}
	tap, err := bpf.Load(bpf.MinRingBytes, true, bpf.HaveMulti(), bpf.Filter{PIDs: map[uint32]uint64{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.Close)
	h := &host{tap: tap, seen: map[uint32]*seen{}}
	if h.control, err = bpf.OpenRing(tap.Control); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.control.Close)
	h.Probes = New(tap, NewFeatures(kinds, false), libraries, slog.New(slog.DiscardHandler))
	t.Cleanup(h.Close)
	if h.side == nil {
		t.Fatal("no perf side-band")
	}
	if err := tap.WatchProcesses(); err != nil {
		t.Fatal(err)
	}
	for _, path := range libraries {
		if err := h.AttachHost(path); err != nil {
			t.Fatal(err)
		}
	}
	h.Start()
	return h
}

// run attaches and reads until end.
func (h *host) run(t testing.TB) *host {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { h.Run(ctx, time.Hour) })
	group.Go(func() {
		for ctx.Err() == nil {
			h.read()
			time.Sleep(time.Millisecond)
		}
	})
	h.stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(h.stop)
	return h
}

// end stops, reads the last records, and returns the counts of each process.
func (h *host) end(t testing.TB) map[uint32]*seen {
	t.Helper()
	if h.stop != nil {
		h.stop()
	}
	h.Detach()
	h.read()
	if lost, err := h.tap.Lost(); err != nil || lost != ([bpf.LostCauses]uint64{}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	return h.seen
}

// read reads the control ring to its end, and then applies earlier changes, as a producer does.
func (h *host) read() {
	changes := h.TakeChanges()
	end := h.control.Written()
	for raw := h.control.Next(end); raw != nil; raw = h.control.Next(end) {
		h.note(raw)
	}
	h.control.Free()
	for pid := range changes.Late {
		if s := h.seen[pid]; s != nil && s.announced {
			s.late = h.IsLate(pid, s.start)
		}
	}
}

func (h *host) note(raw []byte) {
	head := bpf.As[bpf.Head](raw)
	s := h.seen[head.TGID]
	if s == nil {
		s = &seen{onGPU: true}
		h.seen[head.TGID] = s
	}
	op := schema.Calls[head.Call].Op
	switch head.Type {
	case bpf.RecordThread:
		if r := bpf.As[bpf.ThreadRecord](raw); !s.announced {
			s.announced, s.start = true, schema.KTime(r.ProcessStart)
			s.late = h.IsLate(r.TGID, s.start)
		}
	case bpf.RecordEnd:
		h.Ended(head.TGID)
		if op == schema.OpExit {
			s.exits++
			s.announced = false
		} else {
			s.late = false // a new image
		}
	case bpf.RecordMemory:
		switch op {
		case schema.OpContextRetain, schema.OpContextCreate:
			s.contexts++
		case schema.OpAlloc:
			s.allocs++
			s.onGPU = s.onGPU && s.contexts > 0
		case schema.OpFree:
			s.frees++
		}
	}
}

// of returns the library that a process has mapped, nil while it has no probes.
func (h *host) of(pid int) *attached {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.users.byPID[uint32(pid)] {
		if l := h.users.files[u.inode]; l != nil && l.since != 0 {
			return l
		}
	}
	return nil
}

func (h *host) awaitAttached(t testing.TB, s *producertest.Steps) *attached {
	t.Helper()
	producertest.Eventually(t, "the library is attached", func() bool { return h.of(s.Process.Pid) != nil })
	return h.of(s.Process.Pid)
}

// under counts the attached libraries of a folder: other programs of this machine may have theirs.
func (h *host) under(dir string) int {
	n := 0
	for _, l := range h.Libraries() {
		if strings.HasPrefix(l.Path, dir) {
			n++
		}
	}
	return n
}

// pass lets intervals pass, so that unused libraries are detached.
func (h *host) pass(intervals int) {
	h.CatchUp()
	now := bootTime() + leaveGrace
	for range intervals {
		h.step(now)
		now += unusedGrace
	}
	h.closing.Wait()
}

func check(t *testing.T, s *seen, late bool) {
	t.Helper()
	if s == nil {
		t.Fatal("no record of the process")
	}
	if s.late != late || s.allocs != 1 || s.frees != 1 || s.exits != 1 || !s.onGPU {
		t.Errorf("seen %+v, want late %v, 1 allocation, 1 free, 1 exit, in a known context", *s, late)
	}
}

func startLater(t testing.TB, program string) *producertest.Steps {
	t.Helper()
	return producertest.StartSteps(t, exec.Command(program, "later", "--steps"))
}
