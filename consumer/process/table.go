package process

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// maxProcesses limits a Table.
const maxProcesses = 100_000

// Entry is one process with the fold's own state of it.
type Entry[S any] struct {
	Info
	Last  time.Time // wall clock of its last event
	Ended bool
	Calls Calls
	State S

	first uint64 // number in order of first sight
	seen  uint64 // number of the last batch that named it
	row   uint32 // of that batch's dictionary
}

// Table finds the entries of processes.
type Table[S any] struct {
	limit    int // of processes: above it the table forgets a sixteenth
	forget   func(e *Entry[S], silent time.Duration) bool
	onForget func(e *Entry[S])
	entries  map[schema.ProcessID]*Entry[S]
	hosts    map[snapshot.HostID]*hostEntries[S]
	next     uint64      // Entry.first of the next new process
	threads  []*Entry[S] // by thread of the current batch
	batches  uint64
	column   []uint64
}

// hostEntries are the processes of one host in order of first sight. The host's own clock measures silence, so a host
// with a wrong clock does not make the processes of other hosts look old.
type hostEntries[S any] struct {
	swept time.Time
	order []*Entry[S]
}

// NewTable returns an empty Table. About once per minute of a host's event time it asks forget whether to forget a
// process that has been silent for that long; a nil forget keeps all.
func NewTable[S any](forget func(e *Entry[S], silent time.Duration) bool) *Table[S] {
	return &Table[S]{limit: maxProcesses, forget: forget, entries: map[schema.ProcessID]*Entry[S]{},
		hosts: map[snapshot.HostID]*hostEntries[S]{}}
}

// Silent returns a function for NewTable that forgets a process after so much silence; nil for 0.
func Silent[S any](keep time.Duration) func(*Entry[S], time.Duration) bool {
	if keep <= 0 {
		return nil
	}
	return func(_ *Entry[S], silent time.Duration) bool { return silent >= keep }
}

// OnForget makes the table call gone with every entry that it forgets, for folds that keep data of a process outside
// of its State.
func (t *Table[S]) OnForget(gone func(e *Entry[S])) { t.onForget = gone }

// Threads returns the entry of each thread of the batch, adding entries of new processes. The next call reuses the
// slice. Threads also forgets processes that were silent for too long, except those of this batch.
func (t *Table[S]) Threads(b *schema.Batch) []*Entry[S] {
	t.trim()
	now := b.Wall(b.Last)
	t.threads = t.threads[:0]
	if b.Events == 0 {
		now = time.Time{} // a batch without events has no event time
	}
	h := t.host(snapshot.HostID{Cluster: b.Cluster, Host: b.Host})
	t.batches++
	changed := false
	for i := range b.Threads {
		e, again := t.entry(h, b, b.Threads[i].Process, now)
		changed = changed || again
		t.threads = append(t.threads, e)
	}
	if changed {
		t.applyLastRows(b)
	}
	if b.Events > 0 && now.Sub(h.swept).Abs() > time.Minute { // a clock that went back was wrong before
		h.swept = now
		if t.forget != nil {
			t.drop(h, func(e *Entry[S]) bool { return t.forget(e, now.Sub(e.Last)) })
		}
	}
	return t.threads
}

// Names reports whether the batch of the last Threads call names the process.
func (t *Table[S]) Names(e *Entry[S]) bool { return e.seen == t.batches }

func (t *Table[S]) host(id snapshot.HostID) *hostEntries[S] {
	h := t.hosts[id]
	if h == nil {
		h = &hostEntries[S]{}
		t.hosts[id] = h
	}
	return h
}

// entry returns the entry of one row of the batch's processes. again reports that an earlier row belongs to the same
// process, which then changed its name or image within the batch.
func (t *Table[S]) entry(h *hostEntries[S], b *schema.Batch, row uint32, now time.Time) (e *Entry[S], again bool) {
	p := &b.Processes[row]
	id := b.ID(p)
	e = t.entries[id]
	if e == nil {
		e = &Entry[S]{Info: NewInfo(b, p), first: t.next}
		t.next++
		t.add(h, e)
	}
	e.update(p)
	if now.After(e.Last) {
		e.Last = now
	}
	again = e.seen == t.batches && e.row != row
	e.seen, e.row = t.batches, row
	return e, again
}

func (t *Table[S]) add(h *hostEntries[S], e *Entry[S]) {
	t.entries[e.ID] = e
	h.order = append(h.order, e)
}

// applyLastRows updates every process from the row of its last event. The order of rows does not tell: a process may
// take a name and return to its earlier one.
func (t *Table[S]) applyLastRows(b *schema.Batch) {
	t.column = b.Thread().Values(t.column, b.Events)
	for _, thread := range t.column {
		row := b.Threads[thread].Process
		if e := t.threads[thread]; e.row != row {
			e.row = row
			e.update(&b.Processes[row])
		}
	}
}

// Find returns the entry of a process, or nil.
func (t *Table[S]) Find(id schema.ProcessID) *Entry[S] { return t.entries[id] }

// All returns the processes in order of first sight.
func (t *Table[S]) All() []*Entry[S] {
	return slices.SortedFunc(maps.Values(t.entries), func(a, b *Entry[S]) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.ID.Cluster, b.ID.Cluster),
			cmp.Compare(a.ID.Host, b.ID.Host))
	})
}

// Of returns the processes of one host in order of first sight.
func (t *Table[S]) Of(id snapshot.HostID) []*Entry[S] {
	return t.AppendOf(nil, id)
}

// AppendOf appends the processes of one host, in order of first sight.
func (t *Table[S]) AppendOf(to []*Entry[S], id snapshot.HostID) []*Entry[S] {
	if h := t.hosts[id]; h != nil {
		to = append(to, h.order...)
	}
	return to
}

// Hosts returns the hosts of the table, in any order.
func (t *Table[S]) Hosts() []snapshot.HostID { return slices.Collect(maps.Keys(t.hosts)) }

// Forget removes a host with all its processes. It is called between two batches.
func (t *Table[S]) Forget(id snapshot.HostID) {
	t.drop(t.host(id), func(*Entry[S]) bool { return true })
	delete(t.hosts, id)
}

// drop forgets the processes of a host for which gone returns true.
func (t *Table[S]) drop(h *hostEntries[S], gone func(*Entry[S]) bool) {
	h.order = slices.DeleteFunc(h.order, func(e *Entry[S]) bool {
		if gone(e) {
			t.remove(e)
		}
		return t.entries[e.ID] != e
	})
}

func (t *Table[S]) remove(e *Entry[S]) {
	delete(t.entries, e.ID)
	if t.onForget != nil {
		t.onForget(e)
	}
}

// trim reduces a table above its limit by a sixteenth, to make full scans rare. It forgets ended processes first, then
// running ones, each in order of first sight. It runs before a batch's entries are returned, so it never removes one
// of them.
func (t *Table[S]) trim() {
	if len(t.entries) <= t.limit {
		return
	}
	all := t.All()
	for _, ended := range []bool{true, false} {
		for _, e := range all {
			if e.Ended == ended && len(t.entries) > t.limit-t.limit/16 {
				t.remove(e)
			}
		}
	}
	for _, h := range t.hosts {
		t.drop(h, func(*Entry[S]) bool { return false })
	}
}
