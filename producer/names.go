package producer

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// function is a kernel handle of one process.
type function struct {
	interned
	schema.Func
	alias  uint64       // another handle that may have the name
	module uint64       // module or library it is of; 0 unknown
	gone   schema.KTime // its module was unloaded then; 0: it is there
	asked  bool         // its name was looked for in the program's memory

	since  schema.KTime // entry of the call that told it
	before *function    // what the handle was until then: launches of it may still be in a ring
}

// readBy is when every ring has been read past a time; mostBefore bounds what one handle was until then.
const (
	readBy     = 5_000_000_000
	mostBefore = 256
)

// succeeds notes what a handle was before it became f. Launches come from rings of their own, after what was
// told later.
func (f *function) succeeds(old *function, at schema.KTime) {
	f.since, f.before = at, old
	if old == nil {
		return
	}
	if old.gone == 0 && old.alias == f.alias && (f.alias != 0 || old.Name == f.Name) { // told again
		f.since, f.before = old.since, old.before
		return
	}
	for n := 1; old.before != nil && old.since+readBy > at && n < mostBefore; n++ {
		old = old.before
	}
	old.before = nil
}

// at is what the handle of f was at a time.
func (f *function) at(t schema.KTime) *function {
	for t < f.since && f.before != nil {
		f = f.before
	}
	return f
}

// name notes what a handle is called, or that another handle has its name.
func (q *process) name(r *bpf.NameRecord, l *handleLayout) {
	if schema.Calls[r.Call].Shape == schema.ShapeEnumerate {
		q.enumerated(r)
		return
	}
	f := &function{Func: schema.Func{Handle: r.Handle}, alias: r.Alias, module: r.Module}
	if r.Alias == 0 && r.NameBytes > 0 {
		f.Name = text(r.Name[:min(r.NameBytes, bpf.NameBytes)])
		l.check(q.PID, r.Handle, f.Name)
	}
	if schema.Calls[r.Call].Shape == schema.ShapeAlias && schema.Calls[r.Call].Op == schema.OpAlias && f.module == 0 {
		if target := q.funcs[r.Alias]; target != nil {
			f.module = target.module
		}
	}
	old := q.funcs[r.Handle]
	if old != nil && old.gone == 0 && (old.Name == f.Name || old.Name == "") && f.module == 0 {
		f.module = old.module
	}
	f.succeeds(old, schema.KTime(r.Time))
	q.funcs[r.Handle] = f
	q.budget.grow(functionBytes + len(f.Name))
}

// enumerated notes which module kernels are of, so that unloading another one leaves them as they are.
func (q *process) enumerated(r *bpf.NameRecord) {
	for list := r.Name[:min(r.NameBytes, bpf.NameBytes)]; len(list) >= 8; list = list[8:] {
		handle := binary.LittleEndian.Uint64(list)
		f := q.funcs[handle]
		if f == nil || f.gone != 0 || (f.module != 0 && f.module != r.Module) {
			anew := &function{Func: schema.Func{Handle: handle}}
			anew.succeeds(f, schema.KTime(r.Time))
			q.funcs[handle] = anew
			q.budget.grow(functionBytes)
			f = anew
		}
		f.module = r.Module
	}
}

// unload ends the kernels of a module, and puts in doubt those of which it is not known what they are
// of. A library takes its module along. Launches from before may still be in a ring.
func (q *process) unload(module uint64, at schema.KTime) {
	for _, f := range q.funcs {
		of := q.funcs[f.module]
		if (f.module == module || f.module == 0 || (of != nil && of.alias == module)) && f.gone == 0 {
			f.gone = at
		}
	}
}

// function is the kernel behind a handle; its name is "" when it was never told and is not to be found.
func (q *process) function(handle uint64, at schema.KTime, l *handleLayout) *function {
	f := q.funcs[handle]
	if f != nil {
		f = f.at(at)
	}
	if f == nil || (f.gone != 0 && at > f.gone) { // an unseen kernel may have got the handle since
		unseen := &function{Func: schema.Func{Handle: handle}}
		if f == q.funcs[handle] {
			if f != nil {
				unseen.succeeds(f, f.gone+1)
			}
			q.funcs[handle] = unseen
			q.budget.grow(functionBytes)
		}
		f = unseen
	}
	if f.Name == "" && f.alias != 0 {
		if named := q.funcs[f.alias]; named != nil {
			f.Name, f.interned = named.at(f.since).Name, interned{}
		}
	}
	if f.Name == "" && !f.asked {
		f.asked = true
		if f.Name = l.read(q.PID, handle); f.Name != "" {
			f.Read, f.interned = true, interned{}
			q.budget.grow(len(f.Name))
		}
	}
	return f
}

// lasts says that the kernel of a launch is that of all later ones by its handle, until something is told.
func (q *process) lasts(l *bpf.LaunchRecord) bool {
	f := q.funcs[l.Func]
	return f != nil && f.gone == 0 && f.since <= schema.KTime(l.Time)
}

// handleLayout reads kernel names where the driver keeps them: measured with driver 580, the second
// word of what a CUfunction or CUkernel points to is the address of its name. That is no interface, so
// names that were told are checks of it. A single one may differ, since a handle can be given out anew
// before it is looked at. Only the reading goroutine uses it.
type handleLayout struct{ agree, differ int }

// refuted reports whether names that were told say that the driver keeps them elsewhere.
func (l *handleLayout) refuted() bool { return l.differ > 8 && 4*l.differ > l.agree }

// enoughChecks is after how many names that agree the checks become rare: each costs two system calls.
const enoughChecks = 64

func (l *handleLayout) check(pid uint32, handle uint64, name string) {
	if l.refuted() || (l.agree >= enoughChecks && handle/16%64 != 0) {
		return
	}
	found, readable := nameBehind(pid, handle)
	switch {
	case !readable: // the process is gone, or may not be read
	case found == name:
		l.agree++
	default:
		l.differ++
	}
}

// read is the name behind a handle, "" when there is none that looks like one.
func (l *handleLayout) read(pid uint32, handle uint64) string {
	if l.refuted() {
		return ""
	}
	name, _ := nameBehind(pid, handle)
	for _, c := range []byte(name) {
		word := c == '_' || c == '$' || c == '.' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !word {
			return ""
		}
	}
	return name
}

func nameBehind(pid uint32, handle uint64) (name string, readable bool) {
	var word [8]byte
	if handle < 4096 || handle > 1<<47 || readMemory(pid, handle+8, word[:]) < len(word) {
		return "", false
	}
	at := binary.LittleEndian.Uint64(word[:])
	var buf [bpf.NameBytes]byte
	n := readMemory(pid, at, buf[:])
	if n <= 0 {
		return "", false
	}
	name = text(buf[:n])
	return name, len(name) < n
}

// readMemory reads a process's memory up to the first page that is not there, and returns how much.
func readMemory(pid uint32, at uint64, to []byte) int {
	const page = 4096
	first := min(uint64(len(to)), page-at%page)
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: int(first)}}
	if rest := uint64(len(to)) - first; rest > 0 {
		remote = append(remote, unix.RemoteIovec{Base: uintptr(at + first), Len: int(rest)})
	}
	n, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
	if err != nil {
		return 0
	}
	return n
}
