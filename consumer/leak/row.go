package leak

import (
	"strconv"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

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
		return t.row(p, &schema.Memory{Call: m.Call}) // a process with that many GPUs has them not told apart
	}
	p.State.rows = append(rows, row{gpu: gpu, class: class, inferred: inferred})
	p.State.rows[len(rows)].moveTo(p.State.boot, uuid)
	return uint8(len(rows))
}

// place moves a row to the GPU that it turned out to be on.
func (r *row) moveTo(h *boot, uuid string) {
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
