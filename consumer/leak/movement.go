package leak

import (
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Cause says why memory became live, or is no longer live.
type Cause uint8

const (
	Allocated Cause = iota
	Freed           // by a call, or with its CUDA context
	Replaced        // unfreed when its process called exec
	Unfreed         // unfreed when its process ended, or was evicted
	Known           // live when Live was called
)

// Movement is memory that became live, or is no longer live. A Tracker reuses it: a receiver must not keep it.
type Movement struct {
	Cause  Cause
	Slot   uint32        // of the memory: no other live memory has it
	Info   *process.Info // of its process: always the same pointer for a process; it changes with later calls
	Offset int64         // wall clock minus KTime of its host, as known now, in ns
	Last   schema.KTime  // of the latest event of its host
	Begin  schema.KTime  // of Known: since when it counts, Last or later
	// At is the return time of the call that allocated it, or the entry time of the one that freed it. A movement may
	// be earlier than those before it: calls of two threads overlap.
	At     schema.KTime
	Ptr    uint64 // address, or handle of physical memory
	Bytes  uint64
	GPU    string // UUID; "": unknown
	GPUNo  int32  // in the numbering of the process; -1: unknown
	Class  schema.MemClass
	TID    uint32 // the thread that allocated it
	Thread string // its name
	Symbol string // the call that allocated it
	// CUDAStream is the handle of the CUDA stream on which an event reports an allocation from a pool; 0: the default
	// one, or unknown.
	CUDAStream uint64
	// Stack is the call stack of an allocation that an event reports; nil: unknown. It is valid until the receiver
	// returns.
	Stack *schema.Stack
}

// move reports a movement of memory.
func (t *Tracker) move(p *proc, e entry, cause Cause) {
	if t.cfg.OnMovement == nil {
		return
	}
	m, by, r := &t.moved, &t.threads.slots[e.thread], &p.State.rows[e.row]
	if m.At = e.since; cause != Allocated && cause != Known {
		m.At = t.in.event.Time
	}
	m.Cause, m.Slot, m.Info, m.Offset, m.Last = cause, e.number, &p.Info, p.State.boot.offset, p.State.boot.last
	m.Ptr, m.Bytes, m.GPU, m.GPUNo, m.Class = e.key, e.bytes, r.uuid, r.gpu, r.class
	m.TID, m.Thread, m.Symbol, m.Stack = by.tid, by.comm, t.origins.rows[e.origin].Symbol, nil
	m.CUDAStream = 0
	if cause == Allocated {
		t.addReported(m)
	}
	t.cfg.OnMovement(m)
}

// addReported adds what only the event of an allocation tells.
func (t *Tracker) addReported(m *Movement) {
	e := &t.in.event
	if e.Stack > 0 {
		m.Stack = &t.in.Stacks[e.Stack-1]
	}
	if m.Class == schema.ClassPool {
		m.CUDAStream = e.Aux
	}
}

// Live reports all live memory as Known, in no order. A receiver of movements calls it after Restore, whose memory has
// not moved. begin is when the receiver begins; zero: at the latest event of each host.
func (t *Tracker) Live(begin time.Time) {
	t.mu.Lock()
	defer t.unlock()
	for _, p := range t.table.All() {
		boot := p.State.boot
		if t.moved.Begin = boot.last; !begin.IsZero() {
			t.moved.Begin = max(boot.last, schema.KTime(max(begin.UnixNano()-boot.offset, 0)))
		}
		t.eachInIndex(&p.State, func(e entry) { t.move(p, e, Known) })
	}
}
