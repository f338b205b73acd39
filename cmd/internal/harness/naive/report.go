package naive

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// Report returns what gputap run prints about the fleet. paired: launches and waits are watched.
func (l *Log) Report(paired bool) Object {
	w := l.replay()
	processes := l.processList(w, paired, 0)
	for _, p := range processes {
		p := p.(Object)
		p["heard"] = l.heard(p["cluster"].(string), p["host"].(string))
	}
	return Object{"processes": processes, "hosts": l.Hosts(), "lost": l.lost(), "counters": Object{
		"unmatched_frees": w.counters.unmatched, "realloc_over_live": w.counters.over,
		"late_frees": w.counters.late, "unseen_ends": w.counters.over - min(w.counters.over, w.counters.late),
		"null_frees": w.counters.null, "unknown_handles": w.counters.handles,
		"unknown_contexts": w.counters.contexts,
	}}
}

// Processes returns all processes with their largest n allocations, as gputap describe prints them. gputap-leak tells
// when their hosts were heard.
func (l *Log) Processes(n int) []any {
	w, leak := l.replay(), l.only(ofLeak)
	list := l.processList(w, false, n)
	for _, p := range list {
		p := p.(Object)
		if p["heard"] = nil; w.knows(p) {
			p["heard"] = leak.heard(p["cluster"].(string), p["host"].(string))
		}
	}
	return list
}

// knows reports whether a process has events of memory.
func (w *world) knows(p Object) bool {
	return slices.ContainsFunc(w.programs, func(known *program) bool {
		return known.id.Cluster == p["cluster"] && known.id.Host == p["host"] && known.id.PID == p["pid"] &&
			wall(known, known.id.Start).Equal(p["start"].(time.Time))
	})
}

// processList sorts processes by live memory, start and PID.
func (l *Log) processList(w *world, paired bool, largest int) []any {
	list := []any{}
	type row struct {
		live   uint64
		start  time.Time
		pid    uint32
		object Object
	}
	var rows []row
	for _, last := range l.rows() {
		p, id := &program{boot: w.boot(&last.Header), started: !last.process.Late}, last.id
		for _, known := range w.programs {
			if known.id == id {
				p = known
			}
		}
		one := l.process(w, p, &last, paired)
		if big := p.largest(largest); len(big) > 0 {
			one["largest_allocations"] = big
		}
		rows = append(rows, row{p.live(onGPU).bytes, last.Wall(id.Start), id.PID, one})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.live, a.live), a.start.Compare(b.start), cmp.Compare(a.pid, b.pid))
	})
	for _, r := range rows {
		list = append(list, r.object)
	}
	return list
}

// rows returns the last event of each process: of its memory, else of what else is known of it. Waits alone make no
// process in the folds of memory and launches.
func (l *Log) rows() (list []event) {
	for _, kinds := range [][]schema.Kind{
		{schema.KindMemory}, {schema.KindTensor}, {schema.KindLaunch}, {schema.KindCopy, schema.KindSync},
	} {
		for _, e := range l.processes(kinds...) {
			if !slices.ContainsFunc(list, func(known event) bool { return known.id == e.id }) {
				list = append(list, e)
			}
		}
	}
	return list
}

// process returns one process. Its last row says who it is.
func (l *Log) process(w *world, p *program, last *event, paired bool) Object {
	id, who := last.id, &last.process
	to := Object{"pid": id.PID, "start": last.Wall(id.Start), "comm": who.Comm, "exe": who.Exe, "uid": who.UID,
		"user": who.User, "cluster": id.Cluster, "host": id.Host, "container": who.Container, "pod": who.Pod,
		"unit": who.Unit, "cgroup": who.Cgroup, "nspid": who.NSPID, "job": who.Job, "rank": nil}
	if who.Rank > 0 {
		to["rank"] = who.Rank - 1
	}
	w.memory(p, to)
	launches, copies := l.launchesOf(id), l.copiesOf(id)
	launches.add(to, paired)
	copies.add(to, paired)
	all := Object{}
	for _, some := range []map[string]*calls{p.calls, launches.calls, copies.calls} {
		for symbol, c := range some {
			all[symbol] = c.object()
		}
	}
	to["calls"], to["recorded"] = all, launches.recorded+copies.recorded
	to["torch"], to["unseen"] = l.torch(id), l.unseen(id)
	return to
}
