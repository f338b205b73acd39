package main

import "github.com/gputap/gputap/schema"

// published counts the published events of one process and models its CUDA memory, as far as the recording needs it.
type published struct {
	seen     [schema.NumKinds]bool
	calls    [schema.NumKinds]map[string]uint64 // by symbol, failed ones included
	launches map[string]uint64                  // by mangled name
	copies   map[route]moved
	failed   map[string]uint64 // allocations that failed for lack of memory, by symbol
	unknown  bool              // memory events were withheld, so its memory is unknown
	gap      bool              // a later batch was published, so the gap can be noticed
	exited   bool              // its exit was published

	ended        bool
	gpu, hostMem holding
	memoryAt     map[place]*allocation
}

// place is an address, a handle of physical memory or the address of a mapping.
type place struct {
	made schema.Op // OpAlloc, OpCreate or OpMap
	ptr  uint64
}

// route is a row of the bandwidth fold.
type route struct {
	direction schema.Direction
	set       bool
}

type moved struct{ calls, bytes uint64 }

type holding struct{ live, unfreed uint64 }

type allocation struct {
	bytes   uint64
	class   schema.MemClass
	context uint64 // whose end frees it; 0: none
	holds   int    // references and mappings
}

// process returns the process of a thread.
func (t *truth) process(b *schema.Batch, thread uint32) *published {
	id := b.ID(&b.Processes[b.Threads[thread].Process])
	p := t.processes[id]
	if p == nil {
		p = &published{
			launches: map[string]uint64{}, copies: map[route]moved{}, failed: map[string]uint64{},
			memoryAt: map[place]*allocation{},
		}
		for kind := range p.calls {
			p.calls[kind] = map[string]uint64{}
		}
		t.processes[id] = p
	}
	return p
}

// apply adds a batch to the model of its processes.
func (t *truth) apply(b *schema.Batch, withheld bool) {
	at := host{b.Cluster, b.Host}
	if withheld {
		for i := range b.Threads {
			if p := t.process(b, uint32(i)); b.Kind == schema.KindMemory {
				p.unknown = true
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
		p, id := t.process(b, uint32(b.Thread().At(i))), b.Call().At(i)
		if b.Kind == schema.KindLaunch {
			shape := &b.Shapes[b.Shape().At(i)]
			id = uint64(shape.Call)
			p.launches[b.Funcs[shape.Func].Name]++
		}
		p.seen[b.Kind] = true
		call := &b.Calls[id]
		if call.Op == schema.OpExit {
			p.exited = true
			p.exit()
			continue
		}
		p.calls[b.Kind][call.Symbol]++
		switch b.Kind {
		case schema.KindMemory:
			p.memory(b, i, call)
		case schema.KindCopy:
			to := route{call.Direction, call.Op == schema.OpSet || call.Op == schema.OpSetAsync}
			p.copies[to] = moved{p.copies[to].calls + 1, p.copies[to].bytes + b.Bytes().At(i)}
		}
	}
}

// memory applies a call of a memory batch.
func (p *published) memory(b *schema.Batch, i int, call *schema.CallRef) {
	e := b.Memory(i)
	if e.Result != 0 {
		p.failed[call.Symbol]++
		return
	}
	switch call.Op {
	case schema.OpAlloc, schema.OpCreate:
		a := &allocation{bytes: e.Bytes, class: call.Class, holds: 1}
		if e.Context != 0 && call.Op == schema.OpAlloc && call.Class != schema.ClassPool {
			a.context = b.Contexts[e.Context-1].Handle
		}
		p.memoryAt[place{call.Op, e.Ptr}] = a
		p.holdingOf(a).live += a.bytes
	case schema.OpMap:
		if a := p.memoryAt[place{schema.OpCreate, e.Aux}]; a != nil {
			a.holds++
			p.memoryAt[place{schema.OpMap, e.Ptr}] = a
		}
	case schema.OpFree:
		p.release(place{schema.OpAlloc, e.Ptr})
	case schema.OpRelease:
		p.release(place{schema.OpCreate, e.Ptr})
	case schema.OpUnmap:
		p.release(place{schema.OpMap, e.Ptr})
	case schema.OpContextDestroy:
		for at, a := range p.memoryAt {
			if a.context == e.Ptr {
				p.release(at)
			}
		}
	}
}

func (p *published) holdingOf(a *allocation) *holding {
	if a.class.OnHost() {
		return &p.hostMem
	}
	return &p.gpu
}

// release ends one hold on memory; the last one frees it.
func (p *published) release(at place) {
	a := p.memoryAt[at]
	if a == nil {
		return
	}
	delete(p.memoryAt, at)
	if a.holds--; a.holds == 0 {
		p.holdingOf(a).live -= a.bytes
	}
}

func (p *published) exit() {
	if p.ended {
		return
	}
	p.ended = true
	p.gpu = holding{unfreed: p.gpu.live}
	p.hostMem = holding{unfreed: p.hostMem.live}
	clear(p.memoryAt)
}
