package anomaly

import (
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/schema"
)

// action says how the fold treats the events of one call.
type action uint8

const (
	ignore action = iota
	allocate
	create // physical memory
	free
	release // physical memory
	pin     // host memory
	exec
	exit
	copied
	submit
)

const outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

func actionOf(c *schema.CallRef) action {
	switch {
	case c.Op == schema.OpExec:
		return exec
	case c.Op == schema.OpExit:
		return exit
	case c.Op == schema.OpAlloc && c.Class.OnGPU():
		return allocate
	case c.Op == schema.OpAlloc && c.Class.OnHost():
		return pin
	case c.Op == schema.OpCreate && c.Class.OnGPU(): // a multicast object has no memory of its own
		return create
	case c.Op == schema.OpCreate && c.Class.OnHost():
		return pin
	case c.Op == schema.OpFree && c.Class.OnHost():
		return ignore
	case c.Op == schema.OpFree:
		return free
	case c.Op == schema.OpRelease:
		return release
	}
	return ignore
}

// memory folds a memory batch. It counts small allocations by one column each, and reads all columns only of events
// that rules see one by one.
func (d *Detector) memory(b *schema.Batch, h *rule.Host, procs []*proc) {
	d.actions = d.actions[:0]
	for i := range b.Calls {
		d.actions = append(d.actions, actionOf(&b.Calls[i]))
	}
	c := &d.columns
	c.threads = b.Thread().Values(c.threads, b.Events)
	c.calls = b.Call().Values(c.calls, b.Events)
	c.results = b.Result().Values(c.results, b.Events)
	c.bytes = b.Bytes().Values(c.bytes, b.Events)
	for i, call := range c.calls {
		switch do := d.actions[call]; do {
		case ignore:
		case allocate, create:
			p := procs[c.threads[i]]
			if c.results[i] == 0 {
				p.State.Allocations++
				if c.bytes[i] < rule.LargeBytes && !p.State.Watched() {
					continue
				}
			}
			d.allocation(b, h, p, i, do)
		case free, release:
			if p := procs[c.threads[i]]; c.results[i] == 0 && p.State.HasLarge() {
				d.freed(b, h, p, i, do)
			}
		default:
			d.other(b, h, procs[c.threads[i]], i, do)
		}
	}
	d.countAllocations(b, procs)
}

// countAllocations adds the allocations of GPU memory to the windows of their processes.
func (d *Detector) countAllocations(b *schema.Batch, procs []*proc) {
	c := &d.columns
	if index := rule.IndexOf(b.First); index == rule.IndexOf(b.Last) {
		d.counts = append(d.counts[:0], make([]uint64, len(procs))...)
		for i, call := range c.calls {
			if a := d.actions[call]; a == allocate || a == create {
				d.counts[c.threads[i]]++
			}
		}
		for thread, n := range d.counts {
			if n == 0 {
				continue
			}
			if to := procs[thread].State.At(index); to != nil {
				to.Allocs += n
			}
		}
		return
	}
	c.times = b.Time().Values(c.times, b.Events)
	for i, call := range c.calls {
		if a := d.actions[call]; a == allocate || a == create {
			if to := procs[c.threads[i]].State.At(rule.IndexOf(schema.KTime(c.times[i]))); to != nil {
				to.Allocs++
			}
		}
	}
}

// load sets the event that rules see.
func (d *Detector) load(b *schema.Batch, h *rule.Host, p *proc, i int, what rule.What) *rule.Event {
	e := &d.event
	*e = rule.Event{Memory: b.Memory(i), What: what, Batch: b, Process: p, Host: h}
	e.GPU = p.State.GPU(b, e.Memory.GPU)
	return e
}

func (d *Detector) allocation(b *schema.Batch, h *rule.Host, p *proc, i int, do action) {
	p.Ended = false
	e := d.load(b, h, p, i, rule.Allocated)
	e.Key = keyOf(e.Ptr, do == create)
	switch {
	case e.Result == outOfMemory:
		e.What = rule.Failed
	case e.Result != 0:
		return
	case e.Bytes >= rule.LargeBytes:
		d.rules.Allocate(p, e.Key, e.Bytes, e.GPU)
	}
	d.rules.Event(e)
}

// keyOf returns the Key of an address or a handle.
func keyOf(ptr uint64, physical bool) uint64 {
	if physical {
		return ptr | rule.Handle
	}
	return ptr
}

func (d *Detector) freed(b *schema.Batch, h *rule.Host, p *proc, i int, do action) {
	if key := keyOf(b.Ptr().At(i), do == release); d.rules.Free(p, key) {
		e := d.load(b, h, p, i, rule.Freed)
		e.Key = key
		d.rules.Event(e)
	}
}

// other folds allocations of host memory, and events of processes.
func (d *Detector) other(b *schema.Batch, h *rule.Host, p *proc, i int, do action) {
	e := d.load(b, h, p, i, rule.Ended)
	switch do {
	case pin:
		e.OnHost, e.What = true, rule.Allocated
		switch e.Result {
		case 0:
		case outOfMemory:
			e.What = rule.Failed
		default:
			return
		}
		d.rules.Event(e)
	case exec, exit:
		d.rules.Event(e)
		d.rules.Release(p)
		if p.Ended = do == exit; do == exec { // the history of the old image does not concern the new one
			p.State.Renew(h)
		}
	}
}
