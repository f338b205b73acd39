package main

import (
	"fmt"

	"github.com/gputap/gputap/schema"
)

// told is what was published of one process, and what follows from it: a model of CUDA memory that knows as much as the
// recording needs.
type told struct {
	seen     [schema.NumKinds]bool
	calls    [schema.NumKinds]map[string]uint64 // by symbol, whatever became of them
	launches map[string]uint64                  // by mangled name
	copies   map[way]moved
	failed   map[string]uint64 // allocations that found no memory, by symbol
	torn     bool              // memory events of it were withheld: what it holds cannot be known
	gap      bool              // and somebody can know that, by what came behind
	exited   bool              // it was told

	ended           bool
	gpu, hostMem    holding
	addresses       map[uint64]*allocation
	handles, mapped map[uint64]*allocation
}

// way is a row of the bandwidth fold.
type way struct {
	direction schema.Direction
	set       bool
}

func (w way) String() string {
	if w.set {
		return "set"
	}
	return w.direction.String()
}

type moved struct{ calls, bytes uint64 }

type holding struct{ live, unfreed uint64 }

func (h holding) String() string {
	return fmt.Sprintf("%d bytes live and %d unfreed", h.live, h.unfreed)
}

type allocation struct {
	bytes   uint64
	class   schema.MemClass
	context uint64 // that takes it along; 0: none
	holds   int    // references and mappings
}

func (t *truth) told(b *schema.Batch, thread uint32) *told {
	id := b.ID(&b.Processes[b.Threads[thread].Process])
	p := t.processes[id]
	if p == nil {
		p = &told{
			launches: map[string]uint64{}, copies: map[way]moved{}, failed: map[string]uint64{},
			addresses: map[uint64]*allocation{}, handles: map[uint64]*allocation{}, mapped: map[uint64]*allocation{},
		}
		for kind := range p.calls {
			p.calls[kind] = map[string]uint64{}
		}
		t.processes[id] = p
	}
	return p
}

// tell adds a batch to what is told of its processes.
func (t *truth) tell(b *schema.Batch, withheld bool) {
	at := host{b.Cluster, b.Host}
	if withheld {
		for i := range b.Threads {
			if p := t.told(b, uint32(i)); b.Kind == schema.KindMemory {
				p.torn = true
				t.holes[at] = append(t.holes[at], p)
			}
		}
		return
	}
	if b.Kind == schema.KindMemory {
		for _, p := range t.holes[at] {
			p.gap = true
		}
		delete(t.holes, at)
	}
	for i := range b.Events {
		switch b.Kind {
		case schema.KindMemory:
			e := b.Memory(i)
			t.told(b, e.Thread).memory(b, &e)
		case schema.KindLaunch:
			e := b.Launch(i)
			p, shape := t.told(b, e.Thread), &b.Shapes[e.Shape]
			p.count(b, shape.Call)
			p.launches[b.Funcs[shape.Func].Name]++
		case schema.KindCopy:
			e := b.Copy(i)
			p, call := t.told(b, e.Thread), &b.Calls[e.Call]
			p.count(b, e.Call)
			to := way{call.Direction, call.Op == schema.OpSet || call.Op == schema.OpSetAsync}
			p.copies[to] = moved{p.copies[to].calls + 1, p.copies[to].bytes + e.Bytes}
		case schema.KindSync:
			e := b.Sync(i)
			t.told(b, e.Thread).count(b, e.Call)
		}
	}
}

func (p *told) count(b *schema.Batch, call uint32) {
	p.seen[b.Kind] = true
	p.calls[b.Kind][b.Calls[call].Symbol]++
}

func (p *told) memory(b *schema.Batch, e *schema.Memory) {
	p.seen[schema.KindMemory] = true
	call := &b.Calls[e.Call]
	if call.Op == schema.OpExit {
		p.exited = true
		p.exit()
		return
	}
	p.count(b, e.Call)
	if e.Result != 0 {
		p.failed[call.Symbol]++
		return
	}
	a := &allocation{bytes: e.Bytes, class: call.Class, holds: 1}
	switch call.Op {
	case schema.OpAlloc:
		if e.Context != 0 && call.Class != schema.ClassPool {
			a.context = b.Contexts[e.Context-1].Handle
		}
		p.addresses[e.Ptr] = a
		p.add(a)
	case schema.OpFree:
		p.let(p.addresses, e.Ptr)
	case schema.OpCreate:
		p.handles[e.Ptr] = a
		p.add(a)
	case schema.OpRelease:
		p.let(p.handles, e.Ptr)
	case schema.OpMap:
		if made := p.handles[e.Aux]; made != nil {
			made.holds++
			p.mapped[e.Ptr] = made
		}
	case schema.OpUnmap:
		p.let(p.mapped, e.Ptr)
	case schema.OpContextDestroy:
		for ptr, a := range p.addresses {
			if a.context == e.Ptr {
				p.let(p.addresses, ptr)
			}
		}
	}
}

func (p *told) of(a *allocation) *holding {
	if a.class.OnHost() {
		return &p.hostMem
	}
	return &p.gpu
}

func (p *told) add(a *allocation) { p.of(a).live += a.bytes }

// let ends one hold on memory, which goes with the last.
func (p *told) let(from map[uint64]*allocation, ptr uint64) {
	a := from[ptr]
	if a == nil {
		return
	}
	delete(from, ptr)
	if a.holds--; a.holds == 0 {
		p.of(a).live -= a.bytes
	}
}

func (p *told) exit() {
	if p.ended {
		return
	}
	p.ended = true
	p.gpu = holding{unfreed: p.gpu.live}
	p.hostMem = holding{unfreed: p.hostMem.live}
	clear(p.addresses)
	clear(p.handles)
	clear(p.mapped)
}
