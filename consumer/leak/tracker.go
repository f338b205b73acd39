package leak

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config configures a Tracker. The zero Config is usable.
type Config struct {
	// KeepEnded is how long, in event time, an ended process stays in reports; 0: forever.
	KeepEnded time.Duration
	// Window is the length of the windows of verdicts; 0: one minute.
	Window time.Duration
	// OnVerdict is called with every change of a verdict, in order, after the Apply, Tick, Lost or Forget that caused
	// it. It may read the Tracker. nil: not called.
	OnVerdict func(Change)
	// Rules are those that raise alerts.
	Rules Rules
	// OnAlert is called with every alert that fires or clears, in order, like OnVerdict. nil: not called.
	OnAlert func(alert.Alert)
	// OnMovement is called with the lock held for all memory that becomes live, and that is no longer live. It must not
	// call the Tracker. nil: not called.
	OnMovement func(*Movement)
	// OnContradiction is called, like OnMovement, for each event of a process that contradicts the state. One of the
	// first three Counters or UnknownContexts is 1. nil: not called.
	OnContradiction func(*process.Info, Counters)
	// Tensors returns the verdict about the tensors of a process on the GPU of an ordinal, if it has tensors. It is
	// called with the lock held. nil: no tensors are known.
	Tensors func(of schema.ProcessID, ordinal int32) (v Tensors, known bool)
}

// Tracker is the leak fold: live GPU memory by process.
type Tracker struct {
	cfg   Config
	rules Rules

	mu        sync.Mutex
	book      *alert.Book
	table     *process.Table[state]
	hosts     map[snapshot.HostID]*host
	pids      map[pid]*proc // the latest process with each PID
	slab      slab
	origins   origins
	threads   threads
	workloads workloads
	counters  Counters                                            // except those in quality
	quality   quality                                             // of all hosts
	totals    process.Series[process.Workload, quality, *quality] // of each host
	batches   uint64

	above map[string]uint64 // series above the limit in scrapes, by family; not saved

	changes []Change // not reported yet
	moved   Movement // reused
	unfreed Cause    // of memory that an image leaves
	out     snapshot.Writer

	// in resolves the dictionaries of the batch being applied, by index.
	in struct {
		*schema.Batch
		event    schema.Memory
		boot     *boot
		procs    []*proc
		replaced []*proc // processes whose PIDs are reused later in this batch
		slots    []uint32
		origins  []uint8
		large    bool // a process of the batch has at least manyLive live allocations

		ahead []uint32 // scratch memory of prefetch
		sink  uint32   // keeps the compiler from removing prefetch's reads
	}
}

type pid struct {
	boot *boot
	pid  uint32
}

// proc is one process with its state.
type proc = process.Entry[state]

type state struct {
	boot        *boot
	comm        string // name that its rows are counted under
	addresses   index
	handles     index
	mappings    []mapping // sorted by address
	rows        []row
	devices     []device
	contexts    []cudaContext
	pools       []pool
	samples     []sample // one per GPU that the process queried
	calls       []uint8  // by origin: 1 + index into Calls; 0: not looked up yet
	live        amount   // GPU memory
	hostLive    amount
	unfreed     amount
	hostUnfreed amount // host memory
	withContext amount // freed by the end of its CUDA context
	peak        uint64
	run         uint64 // latest producer run that saw a call of the process
	teardown    teardown
	unmatched   schema.KTime // latest free of memory whose allocation was not seen; 0: none
	held        uint64       // live allocations of every class
	holders     uint64
	unclosed    uint64 // holders left when an image ended
	exports     uint64 // number of export calls

	newestHolder uint32 // head of the list linked by allocation.next
	current      uint8  // index of the context that was looked up last
	gap          bool   // the process had ended inside a gap
}

// amount is bytes in a number of allocations.
type amount struct{ bytes, allocations uint64 }

func (a *amount) add(bytes uint64) { a.change(bytes, 1) }

// change adds n allocations of so many bytes; n may be negative.
func (a *amount) change(bytes uint64, n int) {
	a.bytes += uint64(n) * bytes
	a.allocations += uint64(n)
}

// New returns an empty Tracker.
func New(cfg Config) *Tracker {
	cfg.Window = cmp.Or(cfg.Window, time.Minute)
	t := &Tracker{
		cfg: cfg, rules: cfg.Rules.withDefaults(), hosts: map[snapshot.HostID]*host{}, pids: map[pid]*proc{},
		origins: newOrigins(), threads: newThreads(), unfreed: Unfreed,
		workloads: workloads{index: map[workloadID]*workload{}}, above: map[string]uint64{},
		totals: process.NewSeries[process.Workload, quality](1),
	}
	t.book = alert.NewBook(alert.Config{Family: "leak", Cooldown: t.rules.Cooldown})
	t.table = process.NewTable(func(p *proc, silent time.Duration) bool {
		return cfg.KeepEnded > 0 && p.Ended && silent >= cfg.KeepEnded
	})
	t.table.OnForget(t.onEvict)
	return t
}

// Name returns the fold's name.
func (t *Tracker) Name() string { return "leak" }

// Kinds returns the kinds of batches that the fold reads.
func (t *Tracker) Kinds() []schema.Kind { return []schema.Kind{schema.KindMemory, schema.KindHost} }

// Apply folds one batch. One goroutine at a time calls it, in seq order per host and kind. Apply does not keep b. It
// always returns nil: unusable events are counted.
func (t *Tracker) Apply(b *schema.Batch) error {
	t.mu.Lock()
	defer t.unlock()
	h := t.observe(b)
	if b.Kind == schema.KindMemory {
		t.fold(b, h)
	}
	return nil
}

func (t *Tracker) fold(b *schema.Batch, h *boot) {
	t.begin(b, h)
	m := &t.in.event
	for from := 0; from < b.Events; from += prefetchEvents {
		to := min(from+prefetchEvents, b.Events)
		if from < 2*prefetchEvents || t.in.large {
			t.prefetch(b, from, to)
		}
		for i := from; i < to; i++ {
			b.ReadMemory(i, m)
			t.apply(m)
		}
	}
	for _, p := range t.in.replaced {
		t.exit(p)
	}
	if b.Older != nil {
		t.endMissing(b, h)
	}
	t.in.Batch = nil
}

// begin resolves the batch's dictionaries once for all its events.
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
	for i := range b.GPUs {
		if g := &b.GPUs[i]; g.Bytes > 0 {
			h.setCapacity(g.UUID, g.Bytes)
		}
	}
}

// register initializes a new process. The earlier process with the same PID has ended, even if its end was not seen.
// If this batch still holds events of that earlier process, it ends after the batch.
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

// onEvict removes a process from the tracker. A process that has not ended is here because the table is full: its
// live memory counts as unfreed.
func (t *Tracker) onEvict(p *proc) {
	t.endImage(p)
	if id := (pid{p.State.boot, p.ID.PID}); t.pids[id] == p {
		delete(t.pids, id)
	}
}

// call returns the counter of an event's symbol in its process.
func (t *Tracker) call(p *proc, m *schema.Memory) *process.Call {
	s, i := &p.State, int(t.in.origins[m.Call])
	ref := &t.in.Calls[m.Call]
	if i == 0 { // the fleet has too many symbols
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

// prefetchEvents is how many events are prefetched at once. A process with at least manyLive allocations does not fit
// any CPU cache.
const (
	prefetchEvents = 256
	manyLive       = 1 << 15
)

// prefetch reads the memory that the next events will look up. These reads wait for memory together; events that are
// applied one by one would each wait two or three times. It pays off for hosts whose state is not in any CPU cache.
func (t *Tracker) prefetch(b *schema.Batch, from, to int) {
	threads, keys, read := b.Thread(), b.Ptr(), uint32(0)
	ahead := t.in.ahead[:0]
	for i := from; i < to; i++ {
		first := uint32(0)
		if x := &t.in.procs[threads.At(i)].State.addresses; x.count > 0 {
			first = x.heads[x.bucket(keys.At(i), len(x.heads))]
		}
		ahead = append(ahead, first)
	}
	t.in.ahead = ahead
	for i, first := range ahead {
		if first == 0 {
			continue
		}
		a := t.slab.at(first)
		ahead[i] = a.next // free reads the next entry
		if a.key != keys.At(from+i) {
			ahead[i] = a.chain
		}
		read += a.prev
	}
	for _, next := range ahead {
		if next != 0 {
			read += t.slab.at(next).prev
		}
	}
	t.in.sink = read
}
