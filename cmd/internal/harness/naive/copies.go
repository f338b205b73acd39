package naive

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/schema"
)

// moved sums copies.
type moved struct{ calls, bytes, ns uint64 }

func (m *moved) add(e *event) { m.calls, m.bytes, m.ns = m.calls+1, m.bytes+e.Bytes, m.ns+e.Duration }

func (m moved) object() Object {
	return Object{"calls": m.calls, "bytes": m.bytes, "seconds": float64(m.ns) / 1e9}
}

type group struct {
	gpu       string
	direction schema.Direction
	size      int
	hostMem   schema.HostMem
}

type groupUse struct{ sync, async, ended, behind moved }

// copies are the copies and waits of one process.
type copies struct {
	directions map[string]Object
	groups     map[group]*groupUse
	waits      moved
	recorded   uint64
	calls      map[string]*calls
}

var sizes = []struct {
	most uint64
	name string
}{{4 << 10, "<=4KiB"}, {64 << 10, "<=64KiB"}, {1 << 20, "<=1MiB"}, {16 << 20, "<=16MiB"}, {1 << 63, ">16MiB"}}

func sizeOf(bytes uint64) (i int) {
	for bytes > sizes[i].most {
		i++
	}
	return i
}

func (l *Log) copiesOf(id schema.ProcessID) *copies {
	c := &copies{directions: map[string]Object{}, groups: map[group]*groupUse{}, calls: map[string]*calls{}}
	byDirection := map[string]*groupUse{}
	for _, e := range l.of(schema.KindCopy, id) {
		set := e.call.Op == schema.OpSet || e.call.Op == schema.OpSetAsync
		g, d := &groupUse{}, &groupUse{}
		if key := (group{"", e.call.Direction, sizeOf(e.Bytes), e.hostMem}); !set {
			if e.gpu != nil {
				key.gpu = e.gpu.UUID
			}
			g = at(c.groups, key)
			d = at(byDirection, e.call.Direction.String())
		} else {
			d = at(byDirection, "set")
		}
		switch {
		case e.call.Op == schema.OpCopied:
			g.ended.add(&e)
		case e.call.Op == schema.OpCopiedBehind:
			g.behind.add(&e)
		case !count(c.calls, &e):
			c.recorded++
		case e.Result != 0:
		case e.call.Op == schema.OpCopyAsync || e.call.Op == schema.OpSetAsync:
			g.async.add(&e)
			d.async.add(&e)
		default:
			g.sync.add(&e)
			d.sync.add(&e)
		}
	}
	for name, d := range byDirection {
		if d.sync.calls+d.async.calls > 0 {
			c.directions[name] = Object{"calls": d.sync.calls + d.async.calls, "bytes": d.sync.bytes + d.async.bytes,
				"busy_seconds": float64(d.sync.ns) / 1e9, "async_calls": d.async.calls, "async_bytes": d.async.bytes}
		}
	}
	for _, e := range l.of(schema.KindSync, id) {
		if e.call.Op == schema.OpResume {
			continue // no call
		}
		if count(c.calls, &e); e.call.Op == schema.OpSync && e.Result == 0 {
			c.waits.add(&e)
		}
	}
	return c
}

func at[K comparable](all map[K]*groupUse, key K) *groupUse {
	if all[key] == nil {
		all[key] = &groupUse{}
	}
	return all[key]
}

// add adds the figures of copies to a process. Groups are sorted by their bytes.
func (c *copies) add(to Object, paired bool) {
	maps.DeleteFunc(c.groups, func(_ group, u *groupUse) bool { return *u == groupUse{} })
	list := []any{}
	for _, key := range slices.SortedFunc(maps.Keys(c.groups), func(a, b group) int {
		x, y := c.groups[a], c.groups[b]
		return cmp.Or(cmp.Compare(y.sync.bytes+y.async.bytes, x.sync.bytes+x.async.bytes), cmp.Compare(a.gpu, b.gpu),
			cmp.Compare(a.direction, b.direction), cmp.Compare(a.size, b.size), cmp.Compare(a.hostMem, b.hostMem))
	}) {
		u := c.groups[key]
		one := Object{"gpu": cmp.Or(key.gpu, "unknown"), "direction": key.direction.String(),
			"size": sizes[key.size].name, "host_memory": key.hostMem.String(),
			"calls": u.sync.calls + u.async.calls, "bytes": u.sync.bytes + u.async.bytes, "sync": u.sync.object(),
			"async": Object{"calls": u.async.calls, "bytes": u.async.bytes, "seconds": 0}, "ended": nil,
			"ended_behind": nil, "throughput": u.throughput()}
		if paired {
			one["ended"], one["ended_behind"] = u.ended.object(), u.behind.object()
		}
		list = append(list, one)
	}
	maps.Copy(to, Object{"copies": c.directions, "copy_groups": list,
		"waits": Object{"calls": c.waits.calls, "seconds": float64(c.waits.ns) / 1e9}})
}

func (u *groupUse) throughput() any {
	for i, m := range []moved{u.sync, u.ended, u.behind} {
		if m.ns > 0 && m.bytes > 0 {
			return Object{"bytes_per_second": float64(m.bytes) / (float64(m.ns) / 1e9), "at_least": i > 0}
		}
	}
	return nil
}
