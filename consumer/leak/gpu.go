package leak

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// row is the memory of one process, class and GPU.
type row struct {
	gpu      int32 // ordinal in the process's numbering; noGPU: unknown
	class    schema.MemClass
	device   uint8 // index into its process's devices, or noDevice
	inferred bool  // the producer inferred the GPU
	uuid     string
	live     amount
	peak     uint64
	holders  uint64
	card     *card     // nil while the UUID is unknown
	counter  *workload // nil until the next event after the labels changed
	moved    bool      // counter belongs to another GPU; it stays until the memory allocated there is freed
}

const (
	noGPU   = -1
	maxRows = 256
)

// row returns the index of an event's row in its process, adding the row if it is new.
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
		confirmed := r.inferred && !inferred
		if r.uuid != uuid && uuid != "" && (r.uuid == "" || confirmed) {
			r.moveTo(p.State.boot, uuid)
			r.moved = t.workloads.moved(r)
			t.nameGPU(p, gpu, uuid, inferred)
		}
		if r.moved && r.live.allocations == 0 {
			t.detachRow(r)
		}
		if confirmed || r.uuid == "" {
			r.inferred = inferred
		}
		return uint8(i)
	}
	if len(rows) >= maxRows-int(schema.NumClasses) && gpu != noGPU {
		return t.row(p, &schema.Memory{Call: m.Call}) // the process has too many GPUs: count under no GPU
	}
	p.State.rows = append(rows, row{gpu: gpu, class: class, device: p.State.device(gpu, class), inferred: inferred})
	p.State.rows[len(rows)].moveTo(p.State.boot, uuid)
	t.nameGPU(p, gpu, uuid, inferred)
	return uint8(len(rows))
}

// nameGPU assigns the rows of a GPU whose UUID was unknown so far: no event of their class may come any more.
func (t *Tracker) nameGPU(p *proc, gpu int32, uuid string, inferred bool) {
	if uuid == "" {
		return
	}
	for i := range p.State.rows {
		if r := &p.State.rows[i]; r.gpu == gpu && r.uuid == "" {
			r.moveTo(p.State.boot, uuid)
			r.moved, r.inferred = t.workloads.moved(r), inferred
		}
	}
}

// moveTo assigns a row to another GPU because a later event named the GPU better.
func (r *row) moveTo(h *boot, uuid string) {
	if r.class.OnGPU() {
		r.card.change(r.live.bytes, -1)
		r.card = h.cardOf(uuid)
		r.card.change(r.live.bytes, 1)
	}
	r.uuid = uuid
}

// workload returns the counters of a row. It looks them up again after the row's labels changed.
func (t *Tracker) workload(p *proc, r *row) *workload {
	if r.counter == nil {
		w := process.WorkloadOf(&p.Info)
		w.GPU, w.UUID, w.Comm = ordinal(r.gpu), process.Label(r.uuid), process.Label(p.State.comm)
		r.counter = t.workloads.acquire(workloadID{w, r.class})
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

// card is one physical GPU of one host, found by its UUID. Processes number their GPUs independently.
type card struct {
	live  uint64 // bytes of all processes
	bytes uint64 // memory of the GPU; 0: unknown
	last  sample
}

const (
	maxCards   = 256 // per host
	maxSamples = 64  // GPUs per process whose memory the process queried
)

// A nil *card stands for a GPU whose UUID is unknown.

// change adds n times so many live bytes; n may be negative.
func (c *card) change(bytes uint64, n int) {
	if c != nil {
		c.live += uint64(n) * bytes
	}
}

// cardOf returns the card with this UUID, adding it if it is new; nil if the UUID is unknown.
func (h *boot) cardOf(uuid string) *card {
	c := h.cards[uuid]
	if c == nil && uuid != "" && len(h.cards) < maxCards {
		if h.cards == nil {
			h.cards = map[string]*card{}
		}
		c = &card{}
		h.cards[uuid] = c
	}
	return c
}

// setCapacity stores the memory of a GPU in bytes.
func (h *boot) setCapacity(uuid string, bytes uint64) {
	if c := h.cardOf(uuid); c != nil {
		c.bytes = bytes
	}
}

// sample is one answer of cuMemGetInfo, with the live bytes at that moment.
type sample struct {
	gpu         int32 // ordinal in the process's numbering; noGPU: unknown
	uuid        string
	inferred    bool
	at          schema.KTime
	used, total uint64 // bytes of the whole GPU
	own, all    uint64 // live bytes of the process that asked, and of all processes of its host
}

func (c *coder) sample(s *sample) {
	snapshot.Int(c.Codec, &s.gpu)
	c.String(&s.uuid)
	c.Bool(&s.inferred)
	snapshot.Uint(c.Codec, &s.at)
	snapshot.Uint(c.Codec, &s.used, &s.total, &s.own, &s.all)
}

// memInfo stores an answer of cuMemGetInfo with the live bytes of that GPU.
func (t *Tracker) memInfo(p *proc, m *schema.Memory) {
	s := &p.State
	now := sample{gpu: noGPU, at: returned(m), used: m.Bytes, total: m.Aux}
	if m.GPU > 0 {
		g := &t.in.GPUs[m.GPU-1]
		now.gpu, now.uuid, now.inferred = int32(g.Ordinal), g.UUID, g.Inferred
		t.nameGPU(p, now.gpu, now.uuid, now.inferred)
	}
	for i := range s.rows {
		if r := &s.rows[i]; r.gpu == now.gpu && r.class.OnGPU() {
			now.own += r.live.bytes
		}
	}
	now.all = now.own
	if c := s.boot.cardOf(now.uuid); c != nil {
		now.all = c.live
		c.last = now
	}
	i := slices.IndexFunc(s.samples, func(old sample) bool { return old.gpu == now.gpu })
	switch {
	case i >= 0:
		s.samples[i] = now
	case len(s.samples) < maxSamples:
		s.samples = append(s.samples, now)
	}
}

// addCards adds the latest sample of every GPU of a host; of samples of the same time, the largest.
func (s *scrape) addCards(m *host) {
	for _, h := range m.boots {
		for uuid, c := range h.cards {
			if c.last.at == 0 {
				continue
			}
			id := process.Workload{HostID: m.id, UUID: process.Label(uuid)}.Page()
			now := unexplainedBytes{h.wall(c.last.at), int64(c.last.used) - int64(c.last.all)}
			before, known := s.cards[id]
			if !known || cmp.Or(now.at.Compare(before.at), cmp.Compare(now.bytes, before.bytes)) > 0 {
				s.cards[id] = now
			}
		}
	}
}

// limitCards keeps the first GPUs in order of host and UUID.
func (s *scrape) limitCards() {
	if len(s.cards) > process.MaxSeries {
		all := slices.SortedFunc(maps.Keys(s.cards), process.Workload.Compare)
		for _, id := range all[process.MaxSeries:] {
			s.above["gputap_leak_unexplained_bytes"]++
			delete(s.cards, id)
		}
	}
}
