package leak

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	kib = uint64(1) << 10
	mib = uint64(1) << 20
	gib = uint64(1) << 30
)

// simulation runs a synthetic program in event time and keeps every event as truth. A heartbeat every ten seconds
// closes windows.
type simulation struct {
	tb      testing.TB
	tracker *Tracker
	host    *consumertest.Host
	p       *consumertest.Process
	rng     *rand.Rand
	now     schema.KTime
	beat    schema.KTime // of the next heartbeat
	next    uint64       // address
	class   string       // symbol that allocates
	losing  bool         // events are lost
	lossy   map[int]bool // windows in which events were lost; nil: none are
	events  []event
	blocks  map[uint64]block
	steps   []consumertest.Step // all input of the tracker

	onWindow func(*simulation) // called after each tick that closed a window
}

// event is an allocation or the free of one, of which no record was lost.
type event struct {
	at    schema.KTime // when it counts
	ptr   uint64
	bytes uint64 // 0: a free
	block
}

type block struct {
	tid   uint32
	gpu   string
	born  schema.KTime
	bytes uint64
	seen  bool // the allocation was not lost
}

const heartbeat = 10 * time.Second

func newSimulation(tb testing.TB, cfg Config) *simulation {
	s := &simulation{tb: tb, tracker: New(cfg), host: consumertest.Memory(tb, "gpu-01"), next: 0x7f0000000000,
		rng: rand.New(rand.NewPCG(1, 2)), class: "cuMemAlloc_v2", blocks: map[uint64]block{}}
	s.now = schema.KTime(1000*time.Hour + 17*time.Second)
	s.host.Header.Run, s.host.Header.Last = uint64(s.now), s.now
	s.beat = s.now + schema.KTime(heartbeat)
	s.p = s.host.Process(42, s.now, "serve")
	s.p.GPU = &schema.GPU{UUID: "GPU-0", Bytes: 80 * gib}
	return s
}

// alloc allocates memory that the thread holds until free.
func (s *simulation) alloc(tid uint32, bytes uint64) (ptr uint64) {
	s.sleep(time.Millisecond)
	ptr = s.next
	s.next += 1 << 21
	b := block{tid, s.p.GPU.UUID, s.now + 1000, bytes, !s.losing}
	s.blocks[ptr] = b
	if !s.losing {
		s.events = append(s.events, event{b.born, ptr, bytes, b})
		s.p.Call(s.class, tid, schema.Memory{Time: s.now, Duration: 1000, Ptr: ptr, Bytes: bytes})
	}
	return ptr
}

func (s *simulation) free(ptrs ...uint64) {
	for _, ptr := range ptrs {
		s.sleep(time.Millisecond)
		b := s.blocks[ptr]
		delete(s.blocks, ptr)
		if b.seen && !s.losing {
			s.events = append(s.events, event{at: s.now, ptr: ptr, block: b})
		}
		if !s.losing {
			s.p.Free(b.tid, ptr, s.now, 1000)
		}
	}
}

// sleep lets time pass. The host sends its events and a heartbeat whenever one is due.
func (s *simulation) sleep(d time.Duration) {
	for until := s.now + schema.KTime(d); s.now < until; {
		s.now = min(until, s.beat)
		if s.now == s.beat {
			s.beat += schema.KTime(heartbeat)
			s.flush()
		}
	}
}

func (s *simulation) flush() {
	if s.losing {
		s.host.Header.Lost[schema.LossControlRing]++
		s.lossy[int((s.now-schema.KTime(heartbeat))/schema.KTime(s.tracker.cfg.Window))] = true
		s.lossy[int(s.now/schema.KTime(s.tracker.cfg.Window))] = true
	}
	s.losing = s.lossy != nil && s.rng.IntN(60) == 0
	closed := s.now / schema.KTime(s.tracker.cfg.Window)
	before := (s.now - schema.KTime(heartbeat)) / schema.KTime(s.tracker.cfg.Window)
	message := s.host.Message()
	beat := schema.NewBuilder(schema.KindHost)
	beat.Ends = []schema.End{{Kind: schema.KindMemory, Seq: s.host.Header.Seq, Through: s.now}}
	steps := consumertest.Steps(message, beat.Encode(&s.host.Header))
	s.steps = append(s.steps, steps...)
	consumertest.Take(s.tb, s.tracker, steps...)
	if closed > before && s.onWindow != nil {
		s.onWindow(s)
	}
}

// until runs step again and again until so much time has passed since the start of the program.
func (s *simulation) until(d time.Duration, step func()) {
	start := schema.KTime(s.host.Header.Run)
	for s.now < start+schema.KTime(d) {
		step()
	}
}

func (s *simulation) minutes() int {
	return int((s.now - schema.KTime(s.host.Header.Run)) / schema.KTime(time.Minute))
}

// allocs allocates n blocks of so many bytes over a time.
func (s *simulation) allocs(tid uint32, n int, bytes uint64, over time.Duration) (ptrs []uint64) {
	for range n {
		ptrs = append(ptrs, s.alloc(tid, bytes))
		s.sleep(over / time.Duration(n))
	}
	return ptrs
}

// work is half a minute of requests. They free their memory.
func (s *simulation) work() {
	for range 6 {
		a, b := s.alloc(7, (1+s.rng.Uint64N(64))*mib), s.alloc(8, (1+s.rng.Uint64N(512))*mib)
		s.sleep(3 * time.Second)
		s.free(a)
		s.sleep(2*time.Second - 4*time.Millisecond)
		s.free(b)
	}
}

// every runs do whenever another such time has passed since the start, while the program works.
func (s *simulation) every(period, until time.Duration, do func(n int)) {
	start := schema.KTime(s.host.Header.Run)
	n := int((s.now - start) / schema.KTime(period))
	s.until(until, func() {
		s.work()
		for at := int((s.now - start) / schema.KTime(period)); n < at; {
			n++
			do(n)
		}
	})
}

func (s *simulation) load() []uint64 { return s.allocs(1, 40, 512*mib, 2*time.Minute) }

func (s *simulation) verdict(gpu int) Verdict {
	p := s.tracker.Report().Processes
	if len(p) == 0 || len(p[0].Verdicts) <= gpu {
		return Verdict{}
	}
	return p[0].Verdicts[gpu]
}

func (s *simulation) String() string {
	v := s.verdict(0)
	return fmt.Sprintf("minute %d: %s, %s, groups %+v", s.minutes(), v.State, v.Why, v.Groups)
}
