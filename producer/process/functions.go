package process

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// Function is the meaning of one kernel handle of one process.
type Function struct {
	schema.Func
	Index Index

	alias  uint64       // another handle of the same kernel, which may have the name
	module uint64       // module or library of the kernel; 0 unknown
	gone   schema.KTime // when its module was unloaded; 0: it is loaded
	read   bool         // gputap looked for its name in the program's memory

	since  schema.KTime // entry of the call that reported it
	before *Function    // the meaning of the handle until then: its launches may still be in a ring
}

const (
	readDelay = 5_000_000_000 // ns after which every ring has been read past a record
	maxBefore = 256           // earlier meanings of one handle that are kept until then
)

// succeeds notes the meaning of a handle before it became f. Launches are read from other rings, after later control
// records.
func (f *Function) succeeds(old *Function, at schema.KTime) {
	f.since, f.before = at, old
	if old == nil {
		return
	}
	if old.gone == 0 && old.alias == f.alias && (f.alias != 0 || old.Name == f.Name) { // reported again
		f.since, f.before = old.since, old.before
		return
	}
	for n := 1; old.before != nil && old.since+readDelay > at && n < maxBefore; n++ {
		old = old.before
	}
	old.before = nil
}

// at returns the meaning of the handle at a time.
func (f *Function) at(t schema.KTime) *Function {
	for t < f.since && f.before != nil {
		f = f.before
	}
	return f
}

// name notes the name of a handle, or that another handle has its name.
func (p *Process) name(r *bpf.NameRecord, l *handleLayout) {
	if schema.Calls[r.Call].Shape == schema.ShapeEnumerate {
		p.enumerated(r)
		return
	}
	f := &Function{Func: schema.Func{Handle: r.Handle}, alias: r.Alias, module: r.Module}
	if r.Alias == 0 && r.NameBytes > 0 {
		f.Name = unix.ByteSliceToString(r.Name[:min(r.NameBytes, bpf.NameBytes)])
		l.check(p.PID, r.Handle, f.Name)
	}
	if schema.Calls[r.Call].Shape == schema.ShapeAlias && schema.Calls[r.Call].Op == schema.OpAlias && f.module == 0 {
		if target := p.funcs[r.Alias]; target != nil {
			f.module = target.module
		}
	}
	old := p.funcs[r.Handle]
	if old != nil && old.gone == 0 && (old.Name == f.Name || old.Name == "") && f.module == 0 {
		f.module = old.module
	}
	f.succeeds(old, schema.KTime(r.Time))
	p.funcs[r.Handle] = f
	p.budget.add(functionBytes + len(f.Name))
}

// enumerated notes the module of kernels, so that unloading another module does not affect them.
func (p *Process) enumerated(r *bpf.NameRecord) {
	for list := r.Name[:min(r.NameBytes, bpf.NameBytes)]; len(list) >= 8; list = list[8:] {
		handle := binary.LittleEndian.Uint64(list)
		f := p.funcs[handle]
		if f == nil || f.gone != 0 || (f.module != 0 && f.module != r.Module) {
			reused := &Function{Func: schema.Func{Handle: handle}}
			reused.succeeds(f, schema.KTime(r.Time))
			p.funcs[handle] = reused
			p.budget.add(functionBytes)
			f = reused
		}
		f.module = r.Module
	}
}

// unload ends the kernels of a module or library, and those whose module is unknown. Their launches may still be in a
// ring.
func (p *Process) unload(module uint64, at schema.KTime) {
	for _, f := range p.funcs {
		library := p.funcs[f.module]
		if (f.module == module || f.module == 0 || (library != nil && library.alias == module)) && f.gone == 0 {
			f.gone = at
		}
	}
}

// Function returns the kernel behind a handle of a process at a time. Its name is "" when no call reported it and
// gputap does not find it in memory.
func (t *Table) Function(p *Process, handle uint64, at schema.KTime) *Function {
	f := p.funcs[handle]
	if f != nil {
		f = f.at(at)
	}
	if f == nil || (f.gone != 0 && at > f.gone) { // an unseen kernel may have the handle now
		unseen := &Function{Func: schema.Func{Handle: handle}}
		if f == p.funcs[handle] {
			if f != nil {
				unseen.succeeds(f, f.gone+1)
			}
			p.funcs[handle] = unseen
			p.budget.add(functionBytes)
		}
		f = unseen
	}
	if f.Name == "" && f.alias != 0 {
		if named := p.funcs[f.alias]; named != nil {
			f.Name, f.Index = named.at(f.since).Name, Index{}
		}
	}
	if f.Name == "" && !f.read {
		f.read = true
		if f.Name = t.layout.read(p.PID, handle); f.Name != "" {
			f.Read, f.Index = true, Index{}
			p.budget.add(len(f.Name))
		}
	}
	return f
}

// FunctionSettled reports whether a handle stands for the same kernel in all later launches, until the version of the
// table changes.
func (p *Process) FunctionSettled(handle uint64, at schema.KTime) bool {
	f := p.funcs[handle]
	return f != nil && f.gone == 0 && f.since <= at
}
