package rank

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (f *Fold) Snapshot(yield func(snapshot.Section) error) error {
	return f.form().Save(&f.out, slices.Collect(maps.Keys(f.hosts)), yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (f *Fold) Restore(section snapshot.Section) error { return f.form().Restore(section) }

func (f *Fold) form() snapshot.Form {
	return snapshot.Form{Fold: "rank", Version: 1, Lock: &f.mu, Shard: f.codeShard, Host: f.codeHost}
}

func (f *Fold) codeShard(c *snapshot.Codec) {
	snapshot.Uint(c, &f.counters.summarized, &f.counters.incomplete, &f.counters.ignored)
}

func (f *Fold) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	if c.Reading() {
		if f.hosts[id] != nil {
			c.Fail("the host has been restored already")
			return
		}
		f.hosts[id] = &host{procs: map[procID]*proc{}, jobs: map[string]*numbering{}}
	}
	h := f.hosts[id]
	c.String(&h.boot)
	snapshot.Int(c, &h.offset)
	snapshot.Uint(c, &h.run)
	for i := range h.lost {
		snapshot.Uint(c, &h.lost[i])
	}
	c.Bool(&h.missed)
	snapshot.Uint(c, &h.latest, &h.frozen)
	snapshot.Uint(c, &h.next)
	h.goTo(h.next)
	snapshot.Map(c, &h.jobs, 3, cmp.Compare[string], func(job *string, n **numbering) {
		if c.Reading() {
			*n = &numbering{}
		}
		c.String(job)
		snapshot.Uint(c, &(*n).run)
		snapshot.Uint(c, &(*n).seq)
	})
	all := h.sorted()
	snapshot.List(c, &all, leastProc, func(p **proc) {
		if c.Reading() {
			*p = &proc{host: h}
		}
		f.codeProc(c, *p)
	})
	if !c.Reading() || c.Failed() {
		return
	}
	for _, p := range all {
		h.procs[procID{p.row.PID, p.row.Start}] = p
	}
	if f.processes += len(all); len(h.procs) < len(all) {
		c.Fail("a process appears twice")
	}
}

const leastProc = 23 // bytes

func (f *Fold) codeProc(c *snapshot.Codec, p *proc) {
	codeProcess(c, &p.row)
	snapshot.Uint(c, &p.from, &p.silent)
	c.Bool(&p.ended)
	class := int(p.class)
	c.Below(&class, int(inside)+1)
	p.class = schema.Activity(class)
	snapshot.Uint(c, &p.at)
	p.codeOpen(c)
	p.codePages(c)
}

// codeProcess passes over a row of a dictionary of processes.
func codeProcess(c *snapshot.Codec, p *schema.Process) {
	c.String(&p.Comm, &p.Exe, &p.Container, &p.User, &p.Cgroup, &p.Pod, &p.Unit, &p.Job)
	snapshot.Uint(c, &p.PID, &p.UID, &p.NSPID, &p.Rank, &p.Ranks)
	snapshot.Uint(c, &p.Start)
	c.Bool(&p.Late)
}

func (p *proc) codeOpen(c *snapshot.Codec) {
	var used []window
	for i := range p.open {
		if p.open[i].number > 0 {
			used = append(used, p.open[i].number)
		}
	}
	snapshot.List(c, &used, 1+3*(classes-1), func(number *window) {
		snapshot.Uint(c, number)
		s := &p.open[(*number-1)%maxOpen]
		if *number == 0 || c.Reading() && s.number != 0 {
			c.Fail("window %d", *number)
			return
		}
		s.number = *number
		for class := schema.Launching; class < schema.NumActivities; class++ {
			snapshot.Uint(c, &s.sums[class].count, &s.sums[class].bytes)
			snapshot.Uint(c, &s.sums[class].took)
		}
	})
}

// bin is a bin with a call.
type bin struct {
	index       int
	first, last uint16
}

func (p *proc) codePages(c *snapshot.Codec) {
	var used []*page
	for _, pg := range p.pages {
		if pg != nil {
			used = append(used, pg)
		}
	}
	snapshot.List(c, &used, 2, func(pg **page) {
		if c.Reading() {
			*pg = &page{}
		}
		one := *pg
		snapshot.Uint(c, &one.number)
		at := &p.pages[one.number%maxPages]
		if c.Reading() && *at != nil {
			c.Fail("page %d", one.number)
			return
		}
		*at = one
		codeBins(c, one)
	})
}

func codeBins(c *snapshot.Codec, pg *page) {
	var bins []bin
	for i := range pg.first {
		if pg.first[i] != 0 {
			bins = append(bins, bin{i, pg.first[i], pg.last[i]})
		}
	}
	last := -1
	snapshot.List(c, &bins, 3, func(b *bin) {
		c.Below(&b.index, pageBins)
		snapshot.Uint(c, &b.first, &b.last)
		if c.Reading() && (b.index <= last || b.first == 0) {
			c.Fail("millisecond %d is out of order or empty", b.index)
			return
		}
		last = b.index
		pg.first[b.index], pg.last[b.index] = b.first, b.last
	})
}
