package tensor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (f *Fold) Snapshot(yield func(snapshot.Section) error) error {
	hosts := slices.AppendSeq(f.processes.Hosts(), maps.Keys(f.hosts))
	return f.form().Save(&f.out, hosts, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (f *Fold) Restore(section snapshot.Section) error { return f.form().Restore(section) }

func (f *Fold) form() snapshot.Form {
	return snapshot.Form{Fold: "tensor", Version: 1, Lock: &f.mu, Shard: f.processes.CodeShard, Host: f.codeHost}
}

func (f *Fold) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	width := schema.KTime(f.window)
	snapshot.Uint(c, &width)
	h := f.hosts[id]
	snapshot.Map(c, (*map[string]*boot)(&h), 4, cmp.Compare, func(bootID *string, t **boot) {
		if c.Reading() {
			*t = &boot{}
		}
		c.String(bootID)
		snapshot.Int(c, &(*t).offset)
		snapshot.Uint(c, &(*t).run, &(*t).lost)
		(*t).windows.Code(c)
	})
	if len(h) > maxBoots {
		c.Fail("more than %d boots", maxBoots)
	}
	if c.Reading() && h != nil {
		f.hosts[id] = h
	}
	f.processes.CodeHost(c, id, func(e *process.Entry[state]) {
		open := uint64(0)
		if b := h[e.ID.BootID]; b != nil {
			open = b.windows.Open
		}
		e.State.code(c, time.Duration(width), open)
		if width != schema.KTime(f.window) {
			e.State.beginAllAgain(f.window)
		}
	})
	if width != schema.KTime(f.window) { // last: the length of a saved series depends on the windows
		for _, b := range h {
			b.windows.Reset()
		}
	}
}

// beginAllAgain begins the trends anew, with windows of another length.
func (s *state) beginAllAgain(window time.Duration) {
	for _, d := range s.devices {
		if d.series != nil {
			s.beginAgain(d, window)
		}
	}
}

// leastDevice and leastBlock are the smallest sizes in bytes.
const (
	leastDevice = 37
	leastBlock  = 4
)

func (s *state) code(c *snapshot.Codec, width time.Duration, open uint64) {
	snapshot.Uint(c, &s.run)
	snapshot.Uint(c, &s.cut, &s.ended)
	c.Bool(&s.gap, &s.released)
	snapshot.Map(c, &s.comms, 2, cmp.Compare, func(tid *uint32, comm *string) {
		snapshot.Uint(c, tid)
		c.String(comm)
	})
	snapshot.List(c, &s.devices, leastDevice, func(d **device) {
		if c.Reading() {
			*d = &device{index: uint32(len(s.devices) - 1)}
		}
		(*d).code(c, width, open)
		s.codeBlocks(c, *d)
	})
	if len(s.comms) > maxThreads || len(s.devices) > maxDevices {
		c.Fail("%d names of threads, %d GPUs", len(s.comms), len(s.devices))
	}
	for i, d := range s.devices {
		if c.Reading() && slices.IndexFunc(s.devices, func(o *device) bool { return o.ordinal == d.ordinal }) != i {
			c.Fail("a GPU appears twice")
		}
	}
}

func (d *device) code(c *snapshot.Codec, width time.Duration, open uint64) {
	snapshot.Int(c, &d.ordinal)
	c.String(&d.uuid)
	c.Bool(&d.inferred)
	snapshot.Uint(c, &d.last)
	for _, l := range []*level{&d.allocated, &d.reserved} {
		snapshot.Uint(c, &l.now, &l.peak)
		snapshot.Uint(c, &l.peakAt)
	}
	snapshot.Uint(c, &d.early, &d.unmatched, &d.replaced, &d.total, &d.suspected)
	snapshot.Uint(c, &d.judged, &d.oddFree)
	codeGroups(c, &d.groups)
	d.verdict.Code(c)
	d.cached.Code(c)
	begun := d.series != nil
	if c.Bool(&begun); !begun {
		return
	}
	if c.Reading() {
		d.series, d.cache = trend.NewSeries(width, 0), trend.NewSeries(width, 0)
		d.cache.Restore(d.last, d.cachedBytes())
	}
	d.series.Code(c, open)
	d.cache.Code(c, open)
}

// codeBlocks passes over the blocks of a GPU in the order in which they go to the front of their lists. Of dropped
// blocks only the number and bytes are left.
func (s *state) codeBlocks(c *snapshot.Codec, d *device) {
	if s.released {
		snapshot.Uint(c, &d.blocks, &d.bytes)
		return
	}
	var order []uint32
	for _, head := range d.sizes {
		from := len(order)
		for i := head; i != 0; i = s.blocks.at(i).next {
			order = append(order, i)
		}
		slices.Reverse(order[from:])
	}
	var since schema.KTime
	snapshot.List(c, &order, leastBlock, func(i *uint32) {
		var b block
		if !c.Reading() {
			b = *s.blocks.at(*i)
		}
		later := int64(b.since - since)
		snapshot.Uint(c, &b.ptr, &b.bytes)
		snapshot.Int(c, &later)
		snapshot.Uint(c, &b.tid)
		b.since = since + schema.KTime(later)
		since = b.since
		if c.Reading() {
			s.restore(c, d, &b)
		}
	})
}

// restore adds a restored block.
func (s *state) restore(c *snapshot.Codec, d *device, b *block) {
	switch {
	case c.Failed():
	case s.blocks.find(b.ptr) != nil:
		c.Fail("a block appears twice")
	case d.series == nil:
		c.Fail("an allocator that was never used has blocks")
	default:
		i := s.blocks.get()
		b.device = d.index
		*s.blocks.at(i) = *b
		s.hand(d, i)
		d.series.Restore(b.since, b.bytes)
	}
}
