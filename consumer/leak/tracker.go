package leak

import (
	"slices"
	"strconv"
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
	machines  map[snapshot.HostID]*machine
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
		host     *host
		procs    []*proc
		replaced []*proc // whose PIDs have later owners in the batch
		slots    []uint32
		origins  []uint8
		many     bool // a process has manyLive allocations

		ahead []uint32 // of touch
		read  uint32   // so that its reads are not optimized away
	}
}

type pid struct {
	host *host
	pid  uint32
}

// proc is one process and what it holds.
type proc = process.Entry[state]

type state struct {
	host        *host
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

// row is a process's memory of one class on one GPU.
type row struct {
	gpu      int32 // ordinal in the process's numbering; noGPU
	class    schema.MemClass
	inferred bool // which GPU that is was not told by the program
	uuid     string
	live     amount
	peak     uint64
	holders  uint64
	card     *card     // nil while the UUID is unknown
	counter  *workload // nil until the next event after its labels changed
	moved    bool      // counter is that of another GPU, until what was allocated there is freed
}

const (
	noGPU   = -1
	maxRows = 256
)

// New returns an empty Tracker.
func New(cfg Config) *Tracker {
	if cfg.TopScan <= 0 {
		cfg.TopScan = 4096
	}
	t := &Tracker{
		cfg: cfg, machines: map[snapshot.HostID]*machine{}, pids: map[pid]*proc{}, origins: newOrigins(), threads: newThreads(),
		workloads: workloads{index: map[workloadID]*workload{}},
	}
	t.table = process.NewTable(func(p *proc, silent time.Duration) bool {
		return cfg.KeepEnded > 0 && p.Ended && silent >= cfg.KeepEnded
	})
	t.table.OnForget(t.forget)
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
	for from := 0; from < b.Events; from += touched {
		to := min(from+touched, b.Events)
		if from < 2*touched || t.in.many {
			t.touch(b, from, to)
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
		t.endUntold(b, h)
	}
	t.in.Batch = nil
	return nil
}

// touched is how many events are looked ahead at once; manyLive is from how many live allocations on a process's are in no
// cache, whatever was applied last.
const touched, manyLive = 256, 1 << 15

// touch reads what some events will look up: many reads wait for memory together, where events that are applied one
// after the other each wait two or three times. Of a host of which nothing was heard for a while nothing is in a cache.
func (t *Tracker) touch(b *schema.Batch, from, to int) {
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
		ahead[i] = a.next // as a free will
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
	t.in.read = read
}

// begin looks up what the batch's dictionaries name, once for all its events.
func (t *Tracker) begin(b *schema.Batch, h *host) {
	t.batches++
	t.in.Batch, t.in.host = b, h
	t.in.procs, t.in.many = t.table.Threads(b), false
	t.in.slots, t.in.origins, t.in.replaced = t.in.slots[:0], t.in.origins[:0], t.in.replaced[:0]
	for i, p := range t.in.procs {
		if p.State.host == nil {
			t.meet(p)
		}
		p.State.run = max(p.State.run, b.Run)
		t.in.many = t.in.many || p.State.addresses.count >= manyLive
		id := threadID{p, b.Threads[i].TID, b.Threads[i].Comm}
		t.in.slots = append(t.in.slots, t.threads.slot(id, t.batches))
	}
	for _, ref := range b.Calls {
		t.in.origins = append(t.in.origins, t.origins.of(ref))
	}
}

// meet notes a new process. Its PID's earlier owner has ended, whether or not that was seen: when the batch has the last of it too,
// with the batch.
func (t *Tracker) meet(p *proc) {
	p.State.host, p.State.contexts = t.in.host, noContexts()
	id := pid{t.in.host, p.ID.PID}
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
func (t *Tracker) forget(p *proc) {
	t.endImage(p)
	t.detach(p)
	if id := (pid{p.State.host, p.ID.PID}); t.pids[id] == p {
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

// row gives the index of an event's row in its process: one for each class on each GPU.
func (t *Tracker) row(p *proc, m *schema.Memory) uint8 {
	gpu, uuid, inferred, class := int32(noGPU), "", false, t.in.Calls[m.Call].Class
	if m.GPU > 0 {
		g := &t.in.GPUs[m.GPU-1]
		gpu, uuid, inferred = int32(g.Ordinal), g.UUID, g.Inferred
	}
	rows := p.State.rows
	for i := range rows {
		r := &rows[i]
		if r.class != class || r.gpu != gpu {
			continue
		}
		told := r.inferred && !inferred
		if r.uuid != uuid && uuid != "" && (r.uuid == "" || told) {
			r.place(p.State.host, uuid)
			r.moved = t.workloads.moved(r)
		}
		if r.moved && r.live.allocations == 0 {
			t.detachRow(r)
		}
		if told || r.uuid == "" {
			r.inferred = inferred
		}
		return uint8(i)
	}
	if len(rows) >= maxRows-int(schema.NumClasses) && gpu != noGPU {
		return t.row(p, &schema.Memory{Call: m.Call}) // a process with that many GPUs has them not told apart
	}
	p.State.rows = append(rows, row{gpu: gpu, class: class, inferred: inferred})
	p.State.rows[len(rows)].place(p.State.host, uuid)
	return uint8(len(rows))
}

// place moves a row to the GPU that it turned out to be on.
func (r *row) place(h *host, uuid string) {
	if r.class.OnGPU() {
		r.card.sub(r.live.bytes)
		r.card = h.cardOf(uuid)
		r.card.add(r.live.bytes)
	}
	r.uuid = uuid
}

// workload gives the counters of a row, after a change of labels those of the new ones.
func (t *Tracker) workload(p *proc, r *row) *workload {
	if r.counter == nil {
		r.counter = t.workloads.acquire(workloadID{snapshot.HostID{Cluster: p.ID.Cluster, Host: p.ID.Host}, labels{
			hostname: process.Label(p.ID.Host), gpu: ordinal(r.gpu), uuid: process.Label(r.uuid),
			container: process.Label(p.Container), comm: process.Label(p.State.comm), class: r.class,
		}})
	}
	return r.counter
}

func (t *Tracker) detach(p *proc) {
	for i := range p.State.rows {
		t.detachRow(&p.State.rows[i])
	}
}

func (t *Tracker) detachRow(r *row) {
	if r.counter != nil {
		t.workloads.release(r.counter)
		r.counter, r.moved = nil, false
	}
}

func ordinal(gpu int32) string {
	if gpu == noGPU {
		return ""
	}
	return strconv.Itoa(int(gpu))
}
