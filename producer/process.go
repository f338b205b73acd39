package producer

import (
	"bytes"

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
	devices  devices
	graphs   graphs
	funcs    map[uint64]*function
	coverage coverage
	ended    schema.KTime // 0 while it runs
	budget   *budget      // of all processes
	doubted  bool         // its end may not be told
	missed   bool         // it was gone when that was last looked at
}

// thread is one thread that made calls.
type thread struct {
	interned
	process     *process
	tid         uint32
	comm        string
	context     uint64 // of its last event, and what was known of its process's devices: gpus are those
	change      uint32
	gpus        interned
	inContext   knownContext // of its last memory event
	cudaStream  uint64       // of its last event that has one
	cudaStreams interned
	seen        uint32  // the round of its last event
	since       uint64  // when the image made its first call
	before      *thread // the same thread in the image before: its launches may still be in a ring
}

// at is the thread in the image that it ran at a time.
func (t *thread) at(time uint64) *thread {
	if t.before != nil && time < t.since {
		return t.before
	}
	return t
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
	threads   map[threadKey]*thread
	byKey     map[processKey]*process
	byPID     map[uint32]*process
	late      lateness
	libraries addresses
	identity  *identity
	lastKey   threadKey
	last      *thread // most events come from the thread of the one before
	forgotAt  schema.KTime
	budget    budget
	rounds    uint32       // of forgetting
	lost      uint64       // records of process life, as far as is known
	doubts    int          // looks at which all processes are doubted
	leaving   schema.KTime // when the probes began to go, before the rings were read for the last time; 0: they are there
}

// lateness knows which processes may have called before their library was attached.
type lateness interface {
	isLate(pid uint32, start schema.KTime) bool
	ended(pid uint32)
}

func newProcesses(late lateness, libraries addresses) *processes {
	return &processes{
		threads: map[threadKey]*thread{}, byKey: map[processKey]*process{}, byPID: map[uint32]*process{}, late: late,
		libraries: libraries, identity: newIdentity(),
	}
}

// announce notes a thread's first call.
func (p *processes) announce(r *bpf.ThreadRecord) {
	key := threadKey{r.TID, r.ThreadStart}
	t := &thread{process: p.process(r), tid: r.TID, comm: text(r.Comm[:]), seen: p.rounds, since: r.Time}
	if old := p.threads[key]; old != nil && old.process != t.process && old.process.Start == t.process.Start {
		old.before, t.before = nil, old
	}
	put(p.threads, mostThreads, key, t)
	p.last = nil
}

func (p *processes) process(r *bpf.ThreadRecord) *process {
	key := processKey{r.TGID, r.ProcessStart}
	if known := p.byKey[key]; known != nil {
		return known
	}
	start := schema.KTime(r.ProcessStart)
	made := p.newProcess(p.identity.of(schema.Process{
		PID: r.TGID, Start: start, UID: r.UID, Comm: text(r.ProcessComm[:]), Late: p.late.isLate(r.TGID, start),
	}, r.TGID, start))
	made.devices.readVisible(r.TGID)
	p.byKey[key] = made
	if unannounced := p.byPID[r.TGID]; unannounced != nil && unannounced.Start == 0 {
		unannounced.ended = schema.KTime(r.Time) // it is this one
	}
	p.byPID[r.TGID] = made
	return made
}

func (p *processes) newProcess(known schema.Process) *process {
	q := newProcess(known)
	q.share(&p.budget)
	return q
}

func newProcess(p schema.Process) *process {
	return &process{Process: p, devices: newDevices(), graphs: newGraphs(p.Late), funcs: map[uint64]*function{}}
}

// thread is the thread that made a record. When its announcement was lost, the process is found by
// its pid alone; when that is unknown too it gets an entry that says so by a zero start.
func (p *processes) thread(h *bpf.Head) *thread {
	key := threadKey{h.TID, h.ThreadStart}
	if p.last != nil && p.lastKey == key {
		return p.last.at(h.Time)
	}
	t := p.threads[key]
	if t == nil {
		owner := p.byPID[h.TGID]
		if owner == nil {
			owner = p.newProcess(p.identity.of(schema.Process{PID: h.TGID}, h.TID, schema.KTime(h.ThreadStart)))
			owner.doubted = true
			p.byPID[h.TGID] = owner
		}
		t = &thread{process: owner, tid: h.TID}
		put(p.threads, mostThreads, key, t)
	}
	t.seen = p.rounds
	p.lastKey, p.last = key, t
	return t.at(h.Time)
}

// end notes that an image is gone; its entry stays a while for launches that are still in a ring.
func (p *processes) end(r *bpf.ThreadRecord, now schema.KTime) *thread {
	key := processKey{r.TGID, r.ProcessStart}
	old := p.byKey[key]
	if old == nil && r.ProcessStart == 0 {
		old = p.byPID[r.TGID]
	}
	if old == nil {
		old = p.process(r)
	}
	old.ended = now
	if p.leaving != 0 && schema.KTime(r.Time) >= p.leaving { // Linux tells ends for longer than calls: its last ones may be unseen
		old.Late = true
		p.renew(old)
	}
	p.late.ended(r.TGID)
	leader := &thread{process: old, tid: r.TGID, comm: old.Comm}
	if schema.CallID(r.Call) == schema.CallExec {
		next := old.Process
		next.Comm, next.UID, next.Late = text(r.ProcessComm[:]), r.UID, false
		image := p.newProcess(p.identity.of(next, r.TGID, schema.KTime(r.ProcessStart)))
		image.devices.readVisible(r.TGID)
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
	p.forgetThreads()
	gone := func(q *process) bool { return q.ended != 0 && q.ended+grace < now }
	for key, t := range p.threads {
		if gone(t.process) {
			delete(p.threads, key)
		}
		if t.before != nil && gone(t.before.process) {
			t.before = nil
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

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
