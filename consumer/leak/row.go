package leak

import (
	"strconv"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// row is the memory of one process, class and GPU.
type row struct {
	gpu      int32 // ordinal in the process's numbering; noGPU: unknown
	class    schema.MemClass
	inferred bool // the producer inferred the GPU
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
	p.State.rows = append(rows, row{gpu: gpu, class: class, inferred: inferred})
	p.State.rows[len(rows)].moveTo(p.State.boot, uuid)
	return uint8(len(rows))
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
		r.counter = t.workloads.acquire(workloadID{process.Workload{
			HostID: p.State.boot.id, GPU: ordinal(r.gpu), UUID: process.Label(r.uuid),
			Container: process.Label(p.Container), Comm: process.Label(p.State.comm),
		}, r.class})
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
