package job

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Snapshot passes the state to yield, one section per job, which stands in the place of a host. The goroutine that
// calls Apply calls Snapshot.
func (f *Fold) Snapshot(yield func(snapshot.Section) error) error {
	return f.form().Save(&f.out, slices.Concat(slices.Collect(maps.Keys(f.jobs)), f.book.Hosts()), yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply. Restored alerts are not
// raised again.
func (f *Fold) Restore(section snapshot.Section) error { return f.form().Restore(section) }

func (f *Fold) form() snapshot.Form {
	return snapshot.Form{Fold: "job", Version: 1, Lock: &f.mu, Shard: f.codeShard, Host: f.codeJob}
}

func (f *Fold) codeShard(c *snapshot.Codec) {
	snapshot.Uint(c, &f.ignored)
	f.book.CodeShard(c)
}

// Bytes of the smallest values in a snapshot.
const (
	leastMember  = 24
	leastWindow  = 2
	leastCell    = 10
	leastWait    = 9
	leastOutcome = 36
	leastSuspect = 7
	leastSpreads = 9
	leastShift   = 3
)

func (f *Fold) codeJob(c *snapshot.Codec, id snapshot.HostID) {
	f.book.CodeHost(c, id)
	j := f.jobs[id]
	known := j != nil
	if c.Reading() && known {
		c.Fail("the job has been restored already")
		return
	}
	if c.Bool(&known); !known {
		return
	}
	if j == nil {
		j = newJob(id)
		f.jobs[id] = j
	}
	snapshot.Uint(c, &j.ranks)
	snapshot.Int(c, &j.next, &j.newest, &j.started)
	snapshot.Map(c, &j.shifts, leastShift, boot.compare, func(of *boot, shift *int64) {
		c.String(&of.host, &of.id)
		snapshot.Int(c, shift)
	})
	c.Float64(&j.waiting)
	codeRanks(c, &j.missing)
	snapshot.Map(c, &j.members, leastMember, cmp.Compare[uint32], func(rank *uint32, m **member) {
		if c.Reading() {
			*m = &member{}
		}
		snapshot.Uint(c, rank)
		(*m).code(c, id)
	})
	snapshot.List(c, &j.open, leastWindow, func(w **window) {
		if c.Reading() {
			*w = &window{}
		}
		(*w).code(c, id)
	})
	for i := range j.scales {
		j.scales[i].code(c, id)
	}
	snapshot.List(c, &j.firing, leastSuspect, func(s **suspect) {
		if c.Reading() {
			*s = &suspect{}
		}
		(*s).code(c, id)
	})
	if c.Reading() && !c.Failed() {
		f.members += len(j.members)
		j.check(c)
	}
}

// check refuses what Apply would not leave behind.
func (j *job) check(c *snapshot.Codec) {
	sorted := slices.IsSortedFunc(j.open, func(a, b *window) int { return cmp.Compare(a.number, b.number) })
	if j.ranks > maxRanks || !sorted {
		c.Fail("%d ranks, or windows out of order", j.ranks)
	}
}

func codeRanks(c *snapshot.Codec, ranks *[]uint32) {
	snapshot.List(c, ranks, 1, func(rank *uint32) { snapshot.Uint(c, rank) })
}

func (m *member) code(c *snapshot.Codec, id snapshot.HostID) {
	c.String(&m.ID.Host)
	m.Code(c, snapshot.HostID{Cluster: id.Cluster, Host: m.ID.Host})
	c.Float64(&m.waiting)
}

func (w *window) code(c *snapshot.Codec, id snapshot.HostID) {
	snapshot.Int(c, &w.number)
	snapshot.Map(c, &w.cells, leastCell, cmp.Compare[uint32], func(rank *uint32, at **cell) {
		if c.Reading() {
			*at = &cell{}
		}
		one := *at
		snapshot.Uint(c, rank)
		codeProcess(c, &one.id, id)
		snapshot.Int(c, &one.number)
		snapshot.Uint(c, &one.launches, &one.run, &one.seq)
		snapshot.List(c, &one.waits, leastWait, func(w *wait) {
			codePlace(c, &w.place)
			c.Float64(&w.share)
		})
	})
	if c.Reading() && w.cells == nil {
		w.cells = map[uint32]*cell{}
	}
}

func codeProcess(c *snapshot.Codec, p *schema.ProcessID, id snapshot.HostID) {
	p.Cluster = id.Cluster
	c.String(&p.Host, &p.BootID)
	snapshot.Uint(c, &p.PID)
	snapshot.Uint(c, &p.Start)
}

func codePlace(c *snapshot.Codec, p *place) {
	at := int(*p)
	c.Below(&at, numPlaces)
	*p = place(at)
}

func (o *outcome) code(c *snapshot.Codec) {
	snapshot.Int(c, &o.number)
	snapshot.Uint(c, &o.against)
	snapshot.Uint(c, &o.seq)
	codePlace(c, &o.place)
	c.Float64(&o.share, &o.others, &o.score, &o.distance)
}

func (s *suspect) code(c *snapshot.Codec, id snapshot.HostID) {
	snapshot.Uint(c, &s.rank)
	snapshot.Uint(c, &s.good)
	codePlace(c, &s.at)
	c.Below(&s.scale, numScales)
	if c.Reading() {
		s.key.Rule, s.key.Job = straggler, id.Host
	}
	codeProcess(c, &s.key.Process, id)
}
