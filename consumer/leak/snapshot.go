package leak

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

var form = snapshot.Form{Fold: "leak", Version: 1}

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (t *Tracker) Snapshot(yield func(snapshot.Section) error) error {
	s := saver{Tracker: t, Writer: &t.out, workloadsOf: map[snapshot.HostID][]*workload{}}
	hosts := map[snapshot.HostID]bool{}
	for id := range t.hosts {
		hosts[id] = true
	}
	for _, c := range t.workloads.index {
		s.workloadsOf[c.HostID] = append(s.workloadsOf[c.HostID], c)
	}
	return form.Save(&t.out, hosts, snapshot.Parts[*snapshot.Writer]{
		Lock:  &t.mu,
		Shard: func(*snapshot.Writer) { s.shard() },
		Host:  func(_ *snapshot.Writer, id snapshot.HostID) { s.host(t.hosts[id]) },
	}, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (t *Tracker) Restore(section snapshot.Section) error {
	return form.Restore(section, snapshot.Parts[*snapshot.Reader]{
		Lock: &t.mu,
		Shard: func(r *snapshot.Reader) {
			l := loader{Tracker: t, Reader: r}
			l.shard()
		},
		Host: func(r *snapshot.Reader, id snapshot.HostID) {
			l := loader{Tracker: t, Reader: r}
			l.host(id)
		},
	})
}

// saver writes one snapshot. It numbers the objects of a section in the order of their first use there.
type saver struct {
	*Tracker
	*snapshot.Writer
	workloadsOf map[snapshot.HostID][]*workload

	boots    map[*boot]uint64
	counters map[*workload]uint64 // from 2 on; 0 means no workload, 1 means other
	procs    map[*proc]uint64
	slots    map[uint32]uint64 // of threads, from 1 on
	origins  [256]uint64       // from 1 on
	mapped   map[uint32]uint64 // memory with mappings, from 1 on
	last     allocation        // the next allocation is written as a difference to it
}

// loader reads one section. Its lists are indexed by the saver's numbers.
type loader struct {
	*Tracker
	*snapshot.Reader

	boots    []*boot
	counters []*workload
	procs    []*proc
	slots    []uint32
	origins  []uint8
	mapped   []uint32
	mappings []int // mappings read so far of each entry of mapped
	hinted   int   // sum of the announced index sizes
	last     allocation
}

func (s *saver) shard() {
	s.table.SaveShard(s.Writer)
	for _, n := range s.Tracker.counters.all() {
		s.Uint(*n)
	}
	refs := slices.SortedFunc(maps.Keys(s.Tracker.origins.index), func(a, b schema.CallRef) int {
		return cmp.Or(cmp.Compare(a.Symbol, b.Symbol), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Direction, b.Direction))
	})
	s.Uint(uint64(len(refs)))
	for i := range refs {
		process.SaveRef(s.Writer, &refs[i])
	}
	s.Uint(s.workloads.releases)
	s.Uint(s.workloads.unplaced)
	for class, c := range s.workloads.others {
		if c != nil {
			s.Bool(true)
			s.String(schema.MemClass(class).String())
			s.workload(c)
		}
	}
	s.Bool(false)
	s.quality(s.otherQuality)
}

func (l *loader) shard() {
	l.table.RestoreShard(l.Reader)
	for _, n := range l.Tracker.counters.all() {
		*n = l.Uint()
	}
	for range l.Each(4) {
		l.Tracker.origins.number(process.RestoreRef(l.Reader))
	}
	l.workloads.releases, l.workloads.unplaced = l.Uint(), l.Uint()
	for l.Bool() {
		l.workload(l.workloads.other(process.RestoreClass(l.Reader)))
	}
	l.otherQuality = l.quality()
}

// all returns the counters in the order of the snapshot.
func (c *Counters) all() []*uint64 {
	return []*uint64{
		&c.UnmatchedFrees, &c.ReallocOverLive, &c.LateFrees, &c.NullFrees,
		&c.UnknownHandles, &c.UnknownContexts, &c.UnknownOps,
	}
}

func (q *quality) all() []*uint64 {
	return []*uint64{&q.unmatchedFrees, &q.reallocOverLive, &q.lateFrees, &q.unknownContexts}
}

func (s *saver) quality(q *quality) {
	s.Bool(q != nil)
	if q == nil {
		return
	}
	for _, n := range q.all() {
		s.Uint(*n)
	}
}

func (l *loader) quality() *quality {
	if !l.Bool() {
		return nil
	}
	q := &quality{}
	for _, n := range q.all() {
		*n = l.Uint()
	}
	return q
}

func (c *workload) counts() []*uint64 {
	return []*uint64{&c.allocated, &c.freed, &c.unfreed, &c.allocs, &c.frees}
}

// workload writes the counters of a workload. Its number of rows follows from the rows.
func (s *saver) workload(c *workload) {
	for _, n := range c.counts() {
		s.Uint(*n)
	}
	s.Uint(c.released)
	failures := slices.SortedFunc(maps.Keys(c.failed), failure.compare)
	s.Uint(uint64(len(failures)))
	for _, f := range failures {
		s.String(f.symbol)
		s.Uint(uint64(f.result))
		s.Uint(c.failed[f])
	}
}

// workload adds saved counters to c, which may be the shared workload of comm="other".
func (l *loader) workload(c *workload) {
	for _, n := range c.counts() {
		*n += l.Uint()
	}
	c.released = max(c.released, l.Uint())
	l.workloads.releases = max(l.workloads.releases, c.released)
	var last failure
	for i := range l.Each(3) {
		f := failure{process.RestoreLabel(l.Reader), l.Uint32()}
		if i > 0 && f.compare(last) <= 0 {
			l.Fail("failed calls are out of order")
			return
		}
		l.workloads.addFailed(c, f, l.Uint())
		last = f
	}
}

func (a failure) compare(b failure) int {
	return cmp.Or(cmp.Compare(a.symbol, b.symbol), cmp.Compare(a.result, b.result))
}

func (s *saver) workloadsOfHost(id snapshot.HostID) {
	s.counters = map[*workload]uint64{}
	all := s.workloadsOf[id]
	slices.SortFunc(all, func(a, b *workload) int { return a.compare(&b.workloadID) })
	s.Uint(uint64(len(all)))
	for i, c := range all {
		s.counters[c] = uint64(i) + 2
		for _, label := range []string{c.gpu, c.uuid, c.container, c.comm, c.class.String()} {
			s.String(label)
		}
		s.workload(c)
	}
}

// workloadsOfHost reads workloads. If restored hosts have already filled the series, some of these count as other.
// None is evicted before the rows of the host are read.
func (l *loader) workloadsOfHost(id snapshot.HostID) {
	for range l.Each(12) {
		w := workloadID{id, labels{
			hostname: process.Label(id.Host), gpu: process.RestoreLabel(l.Reader), uuid: process.RestoreLabel(l.Reader),
			container: process.RestoreLabel(l.Reader), comm: process.RestoreLabel(l.Reader),
			class: process.RestoreClass(l.Reader),
		}}
		if l.workloads.index[w] != nil {
			l.Fail("a workload appears twice")
			return
		}
		c := l.workloads.acquire(w)
		l.workload(c)
		l.counters = append(l.counters, c)
	}
}
