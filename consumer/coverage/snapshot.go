package coverage

import (
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
	return snapshot.Form{
		Fold: "coverage", Version: 1, Lock: &f.mu, Shard: func(*snapshot.Codec) {}, Host: f.codeHost,
	}
}

func (f *Fold) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	if c.Reading() {
		if f.hosts[id] != nil {
			c.Fail("the host has been restored already")
			return
		}
		f.hosts[id] = &Host{Cluster: id.Cluster, Host: id.Host}
	}
	h := f.hosts[id]
	c.String(&h.boot)
	snapshot.Int(c, &h.booted)
	snapshot.Uint(c, &h.run, &h.seq)
	c.String(&h.Linux, &h.Producer)
	snapshot.List(c, &h.Libraries, 6, func(l *schema.Library) {
		c.String(&l.Path)
		snapshot.Uint(c, &l.Inode)
		snapshot.Uint(c, &l.Attached, &l.Stepped)
		codeStrings(c, &l.Absent)
		codeStrings(c, &l.Failed)
	})
	snapshot.List(c, &h.GPUs, 6, func(g *schema.GPU) {
		c.String(&g.UUID)
		snapshot.Uint(c, &g.Ordinal)
		c.Bool(&g.Inferred)
		c.String(&g.Name, &g.Bus)
		snapshot.Uint(c, &g.Bytes)
	})
	snapshot.List(c, &h.Processes, 17, func(p *Process) {
		p.Code(c, id)
		snapshot.Uint(c, &p.Asked, &p.ExportTables)
		codeStrings(c, &p.Outside)
	})
}

func codeStrings(c *snapshot.Codec, all *[]string) {
	snapshot.List(c, all, 1, func(s *string) { c.String(s) })
}
