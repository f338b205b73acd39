package process

import (
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// LearnThread notes a thread's first call, which announces it.
func (t *Table) LearnThread(r *bpf.ThreadRecord) {
	t.version++
	key := threadKey{r.TID, r.ThreadStart}
	thread := &Thread{
		Process: t.announced(r), TID: r.TID, Comm: unix.ByteSliceToString(r.Comm[:]), seen: t.rounds, since: r.Time,
	}
	old := t.threads[key]
	if old != nil && old.Process != thread.Process && old.Process.Start == thread.Process.Start {
		old.before, thread.before = nil, old
	}
	putBounded(t.threads, maxThreads, key, thread)
	t.last = nil
}

// announced returns the process of an announcement.
func (t *Table) announced(r *bpf.ThreadRecord) *Process {
	key := processKey{r.TGID, r.ProcessStart}
	if known := t.byKey[key]; known != nil {
		return known
	}
	start := schema.KTime(r.ProcessStart)
	p := t.newProcess(schema.Process{
		PID: r.TGID, Start: start, UID: r.UID, Comm: unix.ByteSliceToString(r.ProcessComm[:]),
		Late: t.libraries.IsLate(r.TGID, start),
	}, r.TGID, start)
	t.byKey[key] = p
	if unannounced := t.byPID[r.TGID]; unannounced != nil && unannounced.Start == 0 {
		unannounced.ended = schema.KTime(r.Time) // it is the same process
	}
	t.byPID[r.TGID] = p
	return p
}

// LearnEnd notes that an image ended, by an exit or an exec, and returns its leader. Its entry stays a while for
// launches that are still in a ring.
func (t *Table) LearnEnd(r *bpf.ThreadRecord) *Thread {
	t.version++
	key := processKey{r.TGID, r.ProcessStart}
	old := t.byKey[key]
	if old == nil && r.ProcessStart == 0 {
		old = t.byPID[r.TGID]
	}
	if old == nil {
		old = t.announced(r)
	}
	old.ended = t.now
	if t.leaving != 0 && schema.KTime(r.Time) >= t.leaving { // its last calls may have had no probe
		old.Late = true
		t.clearIndexes(old)
	}
	t.libraries.Ended(r.TGID)
	leader := &Thread{Process: old, TID: r.TGID, Comm: old.Comm}
	if schema.CallID(r.Call) == schema.CallExec {
		next := old.Process
		next.Comm, next.UID, next.Late = unix.ByteSliceToString(r.ProcessComm[:]), r.UID, false
		image := t.newProcess(next, r.TGID, schema.KTime(r.ProcessStart))
		t.byKey[key] = image
		t.byPID[r.TGID] = image
	}
	return leader
}

// LearnName notes the name of a kernel handle, or that another handle has its name.
func (t *Table) LearnName(r *bpf.NameRecord) {
	t.version++
	t.Thread(&r.Head).Process.name(r, &t.layout)
}

// LearnDevice notes which GPU an ordinal is, and its memory.
func (t *Table) LearnDevice(r *bpf.DeviceRecord) {
	t.version++
	p := t.Thread(&r.Head).Process
	p.identify(r, t.Cards)
	t.learnSize(p, r.Device, r.Bytes)
}

// LearnGraph notes a change of a graph or capture.
func (t *Table) LearnGraph(r *bpf.GraphRecord) { t.Thread(&r.Head).Process.apply(r) }

// LearnCoverage notes a function or table that a program got from the driver.
func (t *Table) LearnCoverage(r *bpf.CoverageRecord) {
	p := t.Thread(&r.Head).Process
	p.coverage.note(r, p.PID, t.libraries)
}

// MemoryCall is a memory record, completed by the table.
type MemoryCall struct {
	*bpf.MemoryRecord
	Thread *Thread
	Ptr    uint64 // as recorded; for calls that name only a device, the handle of its primary context
	Device int32  // as recorded, or the ordinal that the table knows
}

// Plain reports whether a memory record is an allocation or free that teaches nothing: it names no pool, no capture
// turned it into a graph node, and its call is not one for host memory. A free of managed memory looks plain, too.
func Plain(m *bpf.MemoryRecord, op schema.Op) bool {
	return (op == schema.OpAlloc || op == schema.OpFree) && m.Pool == 0 && m.Capture == 0 &&
		!reachable(schema.Calls[m.Call].Class)
}

// LearnMemory notes contexts, CUDA streams, pools, modules and graph nodes that a call makes or ends.
func (t *Table) LearnMemory(m *bpf.MemoryRecord) MemoryCall {
	op := schema.Calls[m.Call].Op
	c := MemoryCall{MemoryRecord: m, Thread: t.Thread(&m.Head), Ptr: m.Ptr, Device: m.Device}
	p := c.Thread.Process
	if Plain(m, op) {
		if op == schema.OpFree && p.HasManaged() {
			p.learnHostMem(m, op)
		}
		return c
	}
	t.version++
	p.learnHostMem(m, op)
	d := &p.devices
	switch op {
	case schema.OpContextCreate, schema.OpContextRetain:
		c.Device = d.contextMade(m, op)
	case schema.OpContextRelease, schema.OpContextReset:
		c.Ptr = d.primaries[uint32(m.Device)]
	case schema.OpContextDestroy:
		if ordinal, known := d.Ordinal(m.Ptr, schema.KTime(m.Time)); known {
			c.Device = int32(ordinal)
		}
	case schema.OpAlloc:
		if ordinal, known := d.pools[m.Pool]; known && m.Pool != 0 && m.Result == 0 {
			c.Device = int32(ordinal)
		}
	}
	if m.Result != 0 {
		return c
	}
	switch op {
	case schema.OpStreamCreate, schema.OpStreamDestroy, schema.OpPoolCreate, schema.OpPoolDestroy:
		d.handleMade(m, op)
	case schema.OpMemInfo:
		if ordinal, known := d.Ordinal(c.CUDAContext, schema.KTime(m.Time)); known && d.sizes[ordinal] == 0 {
			t.learnSize(p, ordinal, m.Aux)
		}
	case schema.OpModuleUnload:
		p.unload(m.Ptr, schema.KTime(m.Time))
	case schema.OpAlloc:
		if m.Capture != 0 {
			p.recordMemory(m.Capture, Block{m.Ptr, m.Bytes, d.deviceOf(&c)})
		}
	case schema.OpFree:
		if m.Capture != 0 {
			p.recordMemory(m.Capture, Block{Ptr: m.Ptr})
		}
	}
	return c
}

// LearnLaunch notes a launch that a capture turned into a graph node, and returns the thread that made it.
func (t *Table) LearnLaunch(l *bpf.LaunchRecord) *Thread {
	thread := t.Thread(&l.Head)
	if l.Capture != 0 {
		thread.Process.recordLaunch(l)
	}
	return thread
}
