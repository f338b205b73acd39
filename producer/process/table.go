package process

import (
	"iter"
	"maps"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/pairing"
	"github.com/gputap/gputap/schema"
)

// Process is one image of a traced process and what its control records taught.
type Process struct {
	schema.Process
	Index Index
	Pairs pairing.Process // only the translation uses it

	devices
	graphs
	hostMem
	funcs    map[uint64]*Function
	coverage coverage
	ended    schema.KTime // 0 while it runs
	budget   *budget      // shared by all processes
	doubted  bool         // the record of its end may be lost
	absent   bool         // it was gone at the last check
}

// Thread is one thread that made calls.
type Thread struct {
	Process *Process
	TID     uint32
	Comm    string
	Indexes ThreadIndexes
	Pairs   pairing.Thread // only the translation uses it

	seen   uint32  // the expiry round of its last event
	since  uint64  // when this image made its first call
	before *Thread // the same thread in the image before an exec: its launches may still be in a ring
}

// at returns the thread in the image that it ran at a time.
func (t *Thread) at(time uint64) *Thread {
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

// Libraries answers what only the attached libraries know.
type Libraries interface {
	// IsLate reports whether a process may have made calls before its library was attached.
	IsLate(pid uint32, start schema.KTime) bool
	// Ended notes that an image of a process ended.
	Ended(pid uint32)
	// Unseen returns a function for one process. It names what stands at an address that the process asked for by
	// name, when gputap does not see calls of it; else it returns "".
	Unseen(pid uint32) func(name string, address uint64) string
}

// Table is everything known about traced processes.
type Table struct {
	Cards []Card // the host's GPUs

	threads   map[threadKey]*Thread
	byKey     map[processKey]*Process
	byPID     map[uint32]*Process
	sizes     map[string]uint64 // memory of GPUs by UUID
	libraries Libraries
	identity  *identity
	layout    handleLayout
	now       schema.KTime // when the round began
	version   uint64
	lastKey   threadKey
	last      *Thread // most events are of the same thread as the event before
	budget    budget
	rounds    uint32       // of Expire
	expiredAt schema.KTime // the last of them
	lost      uint64       // records of process life
	checks    int          // how many more times all processes are doubted
	leaving   schema.KTime // when detaching began; 0 before
}

// NewTable returns an empty table that knows the host's GPUs.
func NewTable(libraries Libraries) *Table {
	return &Table{
		Cards: cards("/proc/driver/nvidia"), threads: map[threadKey]*Thread{}, byKey: map[processKey]*Process{},
		byPID: map[uint32]*Process{}, sizes: map[string]uint64{}, libraries: libraries, identity: newIdentity(),
	}
}

// NameJobs makes the table read the job and rank of each process from its environment. host names this host in jobs
// that are local to it.
func (t *Table) NameJobs(host string) { t.identity.jobs, t.identity.host = true, host }

// BeginRound begins a round of reading at a time. All earlier translations are stale then: names are read and entries
// expire between rounds.
func (t *Table) BeginRound(now schema.KTime) {
	t.now = now
	t.version++
}

// Version changes whenever the table learns something that may change the translation of a record.
func (t *Table) Version() uint64 { return t.version }

// Current reports whether a thread is the one of the last record, in the image that it runs now.
func (t *Table) Current(thread *Thread) bool { return t.last == thread }

// Len returns the number of processes.
func (t *Table) Len() int { return len(t.byPID) }

// HasRanks reports whether a process is a rank of a job.
func (t *Table) HasRanks() bool {
	for _, p := range t.byPID {
		if p.Rank > 0 {
			return true
		}
	}
	return false
}

// Threads returns the number of threads.
func (t *Table) Threads() int { return len(t.threads) }

// Thread returns the thread that made a record. If its announcement was lost, Thread finds the process by its pid
// alone. If that is unknown too, the process is new and has no start time.
func (t *Table) Thread(h *bpf.Head) *Thread {
	key := threadKey{h.TID, h.ThreadStart}
	if t.last != nil && t.lastKey == key {
		return t.last.at(h.Time)
	}
	thread := t.threads[key]
	if thread == nil {
		owner := t.byPID[h.TGID]
		if owner == nil {
			owner = t.newProcess(schema.Process{PID: h.TGID}, h.TID, schema.KTime(h.ThreadStart))
			owner.doubted = true
			t.byPID[h.TGID] = owner
		}
		thread = &Thread{Process: owner, TID: h.TID}
		putBounded(t.threads, maxThreads, key, thread)
	}
	thread.seen = t.rounds
	t.lastKey, t.last = key, thread
	return thread.at(h.Time)
}

// newProcess returns a process as its record and /proc describe it.
func (t *Table) newProcess(p schema.Process, tid uint32, threadStart schema.KTime) *Process {
	p, env := t.identity.complete(p, tid, threadStart)
	made := newProcess(p, &t.budget)
	made.visible = visibleTo(t.Cards, env)
	return made
}

func newProcess(p schema.Process, b *budget) *Process {
	return &Process{
		Process: p, devices: newDevices(b), graphs: newGraphs(p.Late, b), funcs: map[uint64]*Function{}, budget: b,
	}
}

// all yields every process once. Those without an announcement are in byPID alone.
func (t *Table) all() iter.Seq[*Process] {
	return func(yield func(*Process) bool) {
		for _, p := range t.byKey {
			if !yield(p) {
				return
			}
		}
		for pid, p := range t.byPID {
			if t.byKey[processKey{pid, uint64(p.Start)}] != p && !yield(p) {
				return
			}
		}
	}
}

// UpdateLate asks again whether a process is late; later events report the answer.
func (t *Table) UpdateLate(pid uint32) {
	p := t.byPID[pid]
	if p == nil || p.ended != 0 {
		return
	}
	if late := t.libraries.IsLate(pid, p.Start); late != p.Late {
		p.Late, p.late = late, late
		t.clearIndexes(p)
	}
}

// Rename notes the new name of a thread; later events report it.
func (t *Table) Rename(pid, tid uint32, comm string) {
	p := t.byPID[pid]
	if p == nil || p.ended != 0 {
		return
	}
	for _, thread := range t.threads {
		if thread.Process == p && thread.TID == tid {
			thread.Comm, thread.Indexes.Thread = comm, Index{}
		}
	}
	if tid == p.PID {
		p.Comm = comm
		t.clearIndexes(p)
	}
}

// clearIndexes makes the next event of a process add a new entry for it to the batch.
func (t *Table) clearIndexes(p *Process) {
	p.Index = Index{}
	for _, thread := range t.threads {
		if thread.Process == p {
			thread.Indexes.Thread = Index{}
		}
	}
}

// BeginDetach notes that probes are being removed from now on: Linux reports the ends of processes for longer than
// their calls, so a process that ends later counts as late.
func (t *Table) BeginDetach(now schema.KTime) { t.leaving = now }

// expiryInterval is how often Expire looks, and how long a process stays after its end: by then every ring was read
// past that.
const expiryInterval = 5_000_000_000

// Expire removes processes some seconds after their end, and threads that ended, if the last time is long enough ago.
func (t *Table) Expire(now schema.KTime) {
	if now < t.expiredAt+expiryInterval {
		return
	}
	t.expiredAt = now
	t.last = nil
	t.expireThreads()
	expired := func(p *Process) bool { return p.ended != 0 && p.ended+expiryInterval < now }
	for key, thread := range t.threads {
		if expired(thread.Process) {
			delete(t.threads, key)
		}
		if thread.before != nil && expired(thread.before.Process) {
			thread.before = nil
		}
	}
	maps.DeleteFunc(t.byKey, func(_ processKey, p *Process) bool { return expired(p) })
	maps.DeleteFunc(t.byPID, func(_ uint32, p *Process) bool { return expired(p) })
}
