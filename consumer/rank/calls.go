package rank

import "github.com/gputap/gputap/schema"

// doing is what the calls of a row of a dictionary do.
type doing struct {
	class schema.Activity // NoActivity: not a call
	count bool            // as a launch
	waits bool
	exit  bool
}

// doingOf returns what a call does. Ops that only report something, such as the end of a copy, are not calls.
func doingOf(kind schema.Kind, c *schema.CallRef) doing {
	switch kind {
	case schema.KindMemory:
		switch c.Op {
		case schema.OpExit:
			return doing{exit: true}
		case schema.OpExec:
			return doing{}
		}
		return doing{class: schema.Allocating}
	case schema.KindLaunch:
		return doing{class: schema.Launching, count: c.Op == schema.OpLaunch || c.Op == schema.OpGraphLaunch}
	case schema.KindCopy:
		switch {
		case c.Op == schema.OpCopied || c.Op == schema.OpCopiedBehind:
			return doing{}
		case c.Direction == schema.HtoD:
			return doing{class: schema.CopyingHtoD}
		case c.Direction == schema.DtoH:
			return doing{class: schema.CopyingDtoH}
		}
		return doing{class: schema.CopyingElse}
	}
	switch c.Op {
	case schema.OpQuery, schema.OpResume:
		return doing{}
	}
	return doing{class: schema.Syncing, waits: c.Op == schema.OpSync}
}

// fold adds the events of a batch.
func (f *Fold) fold(h *host, b *schema.Batch) {
	c := &f.columns
	f.doing = f.doing[:0]
	c.times = b.Time().Values(c.times, b.Events)
	c.threads = b.Thread().Values(c.threads, b.Events)
	if b.Kind == schema.KindLaunch {
		for i := range b.Shapes {
			f.doing = append(f.doing, doingOf(b.Kind, &b.Calls[b.Shapes[i].Call]))
		}
		f.launches(h, b.Shape().Values(c.calls, b.Events))
		return
	}
	for i := range b.Calls {
		f.doing = append(f.doing, doingOf(b.Kind, &b.Calls[i]))
	}
	c.calls = b.Call().Values(c.calls, b.Events)
	c.durations = b.Duration().Values(c.durations, b.Events)
	if b.Kind == schema.KindCopy {
		c.bytes = b.Bytes().Values(c.bytes, b.Events)
	}
	for i, call := range c.calls {
		p := f.rows[c.threads[i]]
		if p == nil {
			continue
		}
		d, at := &f.doing[call], schema.KTime(c.times[i])
		switch {
		case d.exit:
			p.ended = true
		case d.class != schema.NoActivity:
			f.call(p, d.class, at, at+schema.KTime(c.durations[i]))
			f.count(p, d, i, at)
		}
	}
}

// count adds a call that is not a launch to the sums of its window.
func (f *Fold) count(p *proc, d *doing, i int, at schema.KTime) {
	duration := schema.KTime(f.columns.durations[i])
	switch d.class {
	case schema.CopyingHtoD, schema.CopyingDtoH, schema.CopyingElse:
		if s := p.sums(at + duration); s != nil {
			of := &s[d.class]
			of.count++
			of.bytes += f.columns.bytes[i]
			of.took += duration
		}
	case schema.Syncing:
		if !d.waits {
			return
		}
		if s := p.sums(at + duration); s != nil {
			s[schema.Syncing].count++
		}
		p.wait(at, at+duration)
	}
}

// launches adds launches, of which most follow one of the same process in the same window.
func (f *Fold) launches(h *host, shapes []uint64) {
	f.columns.calls = shapes
	var last *proc
	var sum *sums
	var from, to schema.KTime // of the window of sum
	for i, shape := range shapes {
		p, at := f.rows[f.columns.threads[i]], schema.KTime(f.columns.times[i])
		if p == nil {
			continue
		}
		f.mark(p, uint64(at)/unit, schema.Launching, schema.Launching)
		if !f.doing[shape].count {
			continue
		}
		if p != last || at < from || at >= to {
			w := h.windowOf(at)
			last, sum, from, to = p, p.sums(at), h.start(w), h.start(w+1)
		}
		if sum != nil {
			sum[schema.Launching].count++
		}
	}
}
