package producer

import (
	"bytes"
	"fmt"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// interned remembers an entry's index in the open batch of each kind, so that an event costs no
// dictionary look-up. A zero generation is never the current one.
type interned [schema.NumKinds]struct {
	generation uint64
	index      uint32
}

// process is one image of a traced process and what its control records taught.
type process struct {
	schema.Process
	interned
	contexts map[uint64]uint32 // primary context handle → ordinal
	uuids    map[uint32]string // ordinal → UUID
	funcs    map[uint64]*function
	ended    schema.KTime // 0 while it runs
}

// function is a kernel or graph handle of one process.
type function struct {
	interned
	schema.Func
	alias uint64 // another handle that may have the name
}

// thread is one thread that made calls.
type thread struct {
	interned
	process *process
	tid     uint32
	comm    string
	context uint64 // of its last event; gpus are those of this context
	gpus    interned
}

type threadKey struct {
	tid   uint32
	start uint64
}

type processKey struct {
	tgid  uint32
	start uint64
}

// processes is everything known of traced processes. Only the reading goroutine uses it.
type processes struct {
	threads  map[threadKey]*thread
	byKey    map[processKey]*process
	byPID    map[uint32]*process
	late     lateness
	lastKey  threadKey
	last     *thread // most events come from the thread of the one before
	forgotAt schema.KTime
}

// lateness knows which processes may have called before their library was attached.
type lateness interface {
	isLate(pid uint32, start schema.KTime) bool
	ended(pid uint32)
}

func newProcesses(late lateness) *processes {
	return &processes{
		threads: map[threadKey]*thread{}, byKey: map[processKey]*process{}, byPID: map[uint32]*process{}, late: late,
	}
}

// announce notes a thread's first call.
func (p *processes) announce(r *bpf.ThreadRecord) {
	key := threadKey{r.TID, r.ThreadStart}
	p.threads[key] = &thread{process: p.process(r), tid: r.TID, comm: text(r.Comm[:])}
	p.last = nil
}

func (p *processes) process(r *bpf.ThreadRecord) *process {
	key := processKey{r.TGID, r.ProcessStart}
	if known := p.byKey[key]; known != nil {
		return known
	}
	made := newProcess(schema.Process{
		PID: r.TGID, Start: schema.KTime(r.ProcessStart), UID: r.UID, Comm: text(r.ProcessComm[:]),
		Exe: exePath(r.TGID), Container: containerID(r.TGID), Late: p.late.isLate(r.TGID, schema.KTime(r.ProcessStart)),
	})
	p.byKey[key] = made
	p.byPID[r.TGID] = made
	return made
}

func newProcess(p schema.Process) *process {
	return &process{Process: p, contexts: map[uint64]uint32{}, uuids: map[uint32]string{}, funcs: map[uint64]*function{}}
}

// thread is the thread that made a record. When its announcement was lost, the process is found by
// its pid alone; when that is unknown too it gets an entry that says so by a zero start.
func (p *processes) thread(h *bpf.Head) *thread {
	key := threadKey{h.TID, h.ThreadStart}
	if p.last != nil && p.lastKey == key {
		return p.last
	}
	t := p.threads[key]
	if t == nil {
		owner := p.byPID[h.TGID]
		if owner == nil {
			owner = newProcess(schema.Process{PID: h.TGID, Exe: exePath(h.TGID), Container: containerID(h.TGID)})
			p.byPID[h.TGID] = owner
		}
		t = &thread{process: owner, tid: h.TID}
		p.threads[key] = t
	}
	p.lastKey, p.last = key, t
	return t
}

// end notes that an image is gone; its entry stays a while for launches that are still in a ring.
func (p *processes) end(r *bpf.ThreadRecord, now schema.KTime) *thread {
	key := processKey{r.TGID, r.ProcessStart}
	old := p.byKey[key]
	if old == nil {
		old = p.process(r)
	}
	old.ended = now
	p.late.ended(r.TGID)
	leader := &thread{process: old, tid: r.TGID, comm: old.Comm}
	if schema.CallID(r.Call) == schema.CallExec {
		image := newProcess(old.Process)
		image.Comm, image.Exe, image.Late = text(r.ProcessComm[:]), exePath(r.TGID), false
		p.byKey[key] = image
		p.byPID[r.TGID] = image
	}
	return leader
}

// forget drops what ended more than a few seconds ago; by then every ring has been read past it.
func (p *processes) forget(now schema.KTime) {
	const grace = 5_000_000_000
	if now < p.forgotAt+grace {
		return
	}
	p.forgotAt = now
	p.last = nil
	gone := func(q *process) bool { return q.ended != 0 && q.ended+grace < now }
	for key, t := range p.threads {
		if gone(t.process) {
			delete(p.threads, key)
		}
	}
	for key, q := range p.byKey {
		if gone(q) {
			delete(p.byKey, key)
		}
	}
	for pid, q := range p.byPID {
		if gone(q) {
			delete(p.byPID, pid)
		}
	}
}

// name notes what a handle is called, or that another handle has its name.
func (q *process) name(r *bpf.NameRecord) {
	f := &function{Func: schema.Func{Handle: r.Handle}, alias: r.Alias}
	if r.Alias == 0 && r.NameBytes > 0 {
		f.Name = text(r.Name[:min(r.NameBytes, bpf.NameBytes)])
	}
	q.funcs[r.Handle] = f
}

// function is the kernel or graph behind a handle; its name is "" when it was never told.
func (q *process) function(handle uint64) *function {
	f := q.funcs[handle]
	if f == nil {
		f = &function{Func: schema.Func{Handle: handle}}
		q.funcs[handle] = f
	}
	if f.Name == "" && f.alias != 0 {
		if named := q.funcs[f.alias]; named != nil {
			f.Name = named.Name
		}
	}
	return f
}

// device notes a context's ordinal or an ordinal's UUID.
func (q *process) device(r *bpf.DeviceRecord) {
	if r.CUDAContextMade != 0 {
		q.contexts[r.CUDAContextMade] = r.Device
		return
	}
	u := r.UUID
	q.uuids[r.Device] = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
