package naive

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// calls counts the calls of one symbol.
type calls struct {
	ok, failed, recorded uint64
	errors               map[string]uint64
}

// count counts a call. It reports whether the call ran: others were recorded into a graph.
func count(all map[string]*calls, e *event) bool {
	c := all[e.call.Symbol]
	if c == nil {
		c = &calls{errors: map[string]uint64{}}
		all[e.call.Symbol] = c
	}
	switch {
	case e.Result != 0:
		c.failed++
		c.errors[fmt.Sprint(e.Result)]++
	case e.call.Op == schema.OpRecord:
		c.recorded++
		return false
	default:
		c.ok++
	}
	return true
}

func (c *calls) object() Object {
	o := Object{"ok": c.ok, "failed": c.failed}
	if c.failed > 0 {
		o["errors"] = c.errors
	}
	if c.recorded > 0 {
		o["recorded"] = c.recorded
	}
	return o
}

func address(v uint64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", v)
}

func wall(p *program, at schema.KTime) time.Time {
	return time.Unix(0, int64(at)+p.boot.ClockOffset).UTC()
}

func (p *program) uuid(ordinal int) string { return cmp.Or(p.uuids[ordinal], "unknown") }

// memory adds the figures of memory to a process.
func (w *world) memory(p *program, to Object) {
	all, host := p.live(onGPU), p.live(func(l *life) bool { return l.call.Class.OnHost() })
	classes := map[string]uint64{}
	for class := schema.ClassNone + 1; class < schema.NumClasses; class++ {
		if n := p.live(func(l *life) bool { return l.call.Class == class }).bytes; n > 0 {
			classes[class.String()] = n
		}
	}
	maps.Copy(to, Object{
		"ended": p.ended, "evidence": p.evidence(), "exports": p.exports, "classes": classes,
		"live_bytes": all.bytes, "live_allocations": all.allocations, "peak_bytes": p.peak,
		"unfreed_at_exit_bytes": p.unfreed.bytes, "unfreed_at_exit_allocations": p.unfreed.allocations,
		"freed_with_context_bytes":       p.withContext.bytes,
		"freed_with_context_allocations": p.withContext.allocations,
		"host_memory": Object{"live_bytes": host.bytes, "live_allocations": host.allocations,
			"pinned_bytes": classes["pinned"], "registered_bytes": classes["registered"]},
		"holders": w.holders(p), "pools": p.poolList(), "threads": p.threads(), "gpus": p.gpus(),
		"verdicts": p.peakList(),
	})
}

func (p *program) threads() []any {
	list := []any{}
	type thread struct {
		tid  uint32
		comm string
	}
	sums := map[thread]amount{}
	for _, l := range p.lives {
		if !l.holder && onGPU(l) {
			t := thread{l.thread.TID, l.thread.Comm}
			sums[t] = amount{sums[t].bytes + l.Bytes, sums[t].allocations + 1}
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(sums), func(a, b thread) int {
		return cmp.Or(cmp.Compare(sums[b].bytes, sums[a].bytes), cmp.Compare(a.tid, b.tid), cmp.Compare(a.comm, b.comm))
	}) {
		list = append(list, Object{"tid": t.tid, "comm": t.comm, "live_bytes": sums[t].bytes,
			"live_allocations": sums[t].allocations})
	}
	return list
}

// holders lists the newest 100.
func (w *world) holders(p *program) Object {
	all, list := p.holders(), []any{}
	for _, l := range slices.Backward(all) {
		if len(list) == 100 {
			break
		}
		key := l.key
		if l.refs == 0 {
			key = 0
		}
		list = append(list, Object{"address": address(key), "class": l.call.Class.String(), "token": address(l.Aux),
			"owner_pid": w.owners[token{p.id.Cluster, p.id.Host, p.id.BootID, l.Aux}], "since": wall(p, l.since)})
	}
	return Object{"count": len(all), "unclosed_at_exit": p.unclosed, "list": list}
}

func (p *program) poolList() []any {
	list := []any{}
	for _, o := range p.pools {
		live := p.live(func(l *life) bool { return l.pool == o })
		if o.destroyed && live.allocations == 0 {
			continue
		}
		one := Object{"handle": address(o.handle), "ordinal": o.ordinal(), "imported": o.imported,
			"destroyed": o.destroyed, "limit_bytes": o.limit, "live_bytes": live.bytes,
			"live_allocations": live.allocations, "reserved_bytes": 0, "reserved_time": nil, "used_bytes": 0,
			"used_time": nil}
		if o.reserved != nil {
			one["reserved_bytes"], one["reserved_time"] = o.reserved.Bytes, wall(p, o.reserved.returned())
		}
		if o.used != nil {
			one["used_bytes"], one["used_time"] = o.used.Bytes, wall(p, o.used.returned())
		}
		list = append(list, one)
	}
	return list
}

// gpus are those on which the process allocated or opened memory or a call failed, and those that it asked about.
func (p *program) gpus() Object {
	all := Object{}
	ordinals := slices.Collect(maps.Keys(p.peaks))
	for _, s := range p.samples {
		ordinals = append(ordinals, s.ordinal())
	}
	slices.Sort(ordinals)
	for _, n := range slices.Compact(ordinals) {
		one := Object{"live_bytes": p.on(n).bytes, "inferred": p.inferred[n]}
		for _, s := range p.samples {
			if s.ordinal() == n {
				one["memory_info"] = Object{"time": wall(p, s.returned()), "used_bytes": s.Bytes, "total_bytes": s.Aux,
					"process_bytes": s.own, "tracked_bytes": s.all, "unexplained_bytes": int64(s.Bytes) - int64(s.all)}
			}
		}
		all[p.uuid(n)] = one
	}
	return all
}

// peakList has a verdict for each GPU on which the process allocated or opened memory or a call failed, with its peak.
// The processes are too young for another verdict.
func (p *program) peakList() []any {
	list := []any{}
	for n, top := range p.peaks {
		one := Object{"gpu": p.uuid(n), "peak_bytes": top.bytes, "peak_time": nil, "state": "warming",
			"since": nil, "suspect_bytes": 0, "slope_bytes_per_hour": 0, "full_in_seconds": nil, "groups": []any{}}
		if top.at > 0 {
			one["peak_time"] = wall(p, top.at)
		}
		list = append(list, one)
	}
	return list
}

// largest are the largest n live allocations, of equal ones the oldest first.
func (p *program) largest(n int) []any {
	list := []any{}
	all := slices.DeleteFunc(slices.Clone(p.lives), func(l *life) bool { return l.holder })
	slices.SortStableFunc(all, func(a, b *life) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.since, b.since), cmp.Compare(a.key, b.key))
	})
	for _, l := range all[:min(n, len(all))] {
		list = append(list, Object{"address": address(l.key), "bytes": l.Bytes, "class": l.call.Class.String(),
			"gpu": p.uuid(l.ordinal()), "tid": l.thread.TID, "thread": l.thread.Comm, "since": wall(p, l.since),
			"symbol": l.call.Symbol})
	}
	return list
}
