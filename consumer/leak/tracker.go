package leak

import (
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config of a Tracker; the zero Config is a good one.
type Config struct {
	// KeepEnded is how long, in event time, an ended process stays in reports; 0 keeps it for ever.
	KeepEnded time.Duration
	// TopScan is how many allocations Top may look at beyond 64 for each it returns; 0 means 4,096.
	TopScan int
}

// Tracker is the leak fold: live GPU memory by process.
type Tracker struct {
	cfg Config

	mu        sync.Mutex
	table     *process.Table[state]
	hosts     map[snapshot.HostID]*host
	pids      map[pid]*proc // latest process of each PID
	slab      slab
	origins   origins
	threads   threads
	workloads workloads
	counters  Counters
	batches   uint64

	qualities    int      // machines with one of their own
	otherQuality *quality // of the other machines; nil without

	out snapshot.Writer

	// What the batch being applied refers to, by index.
	in struct {
		*schema.Batch
		boot     *boot
		procs    []*proc
		replaced []*proc // whose PIDs have later owners in the batch
		slots    []uint32
		origins  []uint8
		large    bool // a process has manyLive allocations

		ahead []uint32 // of touch
		sink  uint32   // so that its reads are not optimized away
	}
}

type pid struct {
	boot *boot
	pid  uint32
}

// proc is one process and what it holds.
type proc = process.Entry[state]

type state struct {
	boot        *boot
	comm        string // that its rows count under
	addresses   index
	handles     index
	mappings    []mapping // by address
	rows        []row
	contexts    []cudaContext
	pools       []pool
	samples     []sample // by GPU that it asked about
	calls       []uint8  // by origin: 1 + index into Calls, 0 not looked up yet
	live        amount   // GPU memory
	hostLive    amount
	unfreed     amount
	hostUnfreed amount // host memory, unfreed
	withContext amount // freed by the end of its context
	peak        uint64
	run         uint64 // of the producer, the last that named it
	held        uint64 // allocations that are live, of whatever class
	holders     uint64
	unclosed    uint64 // holders at the end of an image
	exports     uint64 // calls

	newestHolder uint32 // the others follow by allocation.next
	current      uint8  // context that was looked up last
	gap          bool   // in the evidence of a process that ended
}

// amount of memory.
type amount struct{ bytes, allocations uint64 }

func (a *amount) add(bytes uint64) { a.bytes += bytes; a.allocations++ }
func (a *amount) sub(bytes uint64) { a.bytes -= bytes; a.allocations-- }

// New returns an empty Tracker.
func New(cfg Config) *Tracker {
	if cfg.TopScan <= 0 {
		cfg.TopScan = 4096
	}
	t := &Tracker{
		cfg: cfg, hosts: map[snapshot.HostID]*host{}, pids: map[pid]*proc{}, origins: newOrigins(), threads: newThreads(),
		workloads: workloads{index: map[workloadID]*workload{}},
	}
	t.table = process.NewTable(func(p *proc, silent time.Duration) bool {
		return cfg.KeepEnded > 0 && p.Ended && silent >= cfg.KeepEnded
	})
	t.table.OnForget(t.onEvict)
	return t
}

// Name is the fold's name.
func (t *Tracker) Name() string { return "leak" }

// Kinds are the kinds of batches that the fold wants.
func (t *Tracker) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory, schema.KindHost} }

// Apply folds one batch. It is called by one goroutine at a time, in seq order per host and kind,
// and does not keep b. It returns no error: what it cannot use, it counts.
func (t *Tracker) Apply(b *schema.Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.observe(b)
	if b.Kind != schema.KindMemory {
		return nil
	}
	t.begin(b, h)
	var m schema.Memory
	for from := 0; from < b.Events; from += prefetchEvents {
		to := min(from+prefetchEvents, b.Events)
		if from < 2*prefetchEvents || t.in.large {
			t.prefetch(b, from, to)
		}
		for i := from; i < to; i++ {
			b.ReadMemory(i, &m)
			t.apply(&m)
		}
	}
	for _, p := range t.in.replaced {
		t.exit(p)
	}
	if b.Older != nil {
		t.endMissing(b, h)
	}
	t.in.Batch = nil
	return nil
}

// begin looks up what the batch's dictionaries name, once for all its events.
func (t *Tracker) begin(b *schema.Batch, h *boot) {
	t.batches++
	t.in.Batch, t.in.boot = b, h
	t.in.procs, t.in.large = t.table.Threads(b), false
	t.in.slots, t.in.origins, t.in.replaced = t.in.slots[:0], t.in.origins[:0], t.in.replaced[:0]
	for i, p := range t.in.procs {
		if p.State.boot == nil {
			t.register(p)
		}
		p.State.run = max(p.State.run, b.Run)
		t.in.large = t.in.large || p.State.addresses.count >= manyLive
		id := threadID{p, b.Threads[i].TID, b.Threads[i].Comm}
		t.in.slots = append(t.in.slots, t.threads.slot(id, t.batches))
	}
	for _, ref := range b.Calls {
		t.in.origins = append(t.in.origins, t.origins.number(ref))
	}
}

// meet notes a new process. Its PID's earlier owner has ended, whether or not that was seen: when the batch has the last of it too,
// with the batch.
func (t *Tracker) register(p *proc) {
	p.State.boot, p.State.contexts = t.in.boot, newContexts()
	id := pid{t.in.boot, p.ID.PID}
	before := t.pids[id]
	if before != nil && before.ID.Start > p.ID.Start {
		return
	}
	switch {
	case before == nil:
	case t.table.Names(before):
		t.in.replaced = append(t.in.replaced, before)
	case !before.Ended:
		t.exit(before)
	}
	t.pids[id] = p
}

// forget lets a process go. One that did not end is here because the table is full: what it held
// counts as unfreed.
func (t *Tracker) onEvict(p *proc) {
	t.endImage(p)
	t.detach(p)
	if id := (pid{p.State.boot, p.ID.PID}); t.pids[id] == p {
		delete(t.pids, id)
	}
}

// call gives the counter of an event's symbol in its process.
func (t *Tracker) call(p *proc, m *schema.Memory) *process.Call {
	s, i := &p.State, int(t.in.origins[m.Call])
	ref := &t.in.Calls[m.Call]
	if i < int(schema.NumClasses) { // a symbol too many: it has no number
		return p.Calls.Find(ref)
	}
	for i >= len(s.calls) {
		s.calls = append(s.calls, 0)
	}
	if s.calls[i] == 0 {
		c := p.Calls.Find(ref)
		at := slices.IndexFunc(p.Calls, func(c process.Call) bool { return c.Symbol == ref.Symbol })
		if at >= 255 {
			return c
		}
		s.calls[i] = uint8(at + 1)
	}
	return &p.Calls[s.calls[i]-1]
}
