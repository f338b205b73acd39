package process

import (
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// MaxProcesses bounds a Table, which has no more than trimmed when it had more.
const (
	MaxProcesses = 100_000
	trimmed      = MaxProcesses - MaxProcesses/16
)

// Entry is one process with the fold's own state of it.
type Entry[S any] struct {
	Info
	Last  time.Time // wall clock of its last event
	Ended bool
	Calls Calls
	State S

	first uint64 // number in order of first sight
	gone  bool   // forgotten, and still in Table.order
	seen  uint64 // the last batch that named it, as Table.batches counts
	row   uint32 // of that batch's dictionary
}

// Table finds the entry of a process.
type Table[S any] struct {
	forget   func(e *Entry[S], silent time.Duration) bool
	onForget func(e *Entry[S])
	entries  map[schema.ProcessID]*Entry[S]
	order    []*Entry[S] // in order of first sight; holds the gone ones until compact
	restored bool        // order is yet to be brought into order
	next     uint64      // Entry.first of the next process
	threads  []*Entry[S]
	batches  uint64
	column   []uint64
	hosts    map[snapshot.HostID]*hostEntries[S]
}

// hostEntries are the processes of one host. Silence is measured by the clock of the host that is
// silent: a host whose clock is wrong makes no other host's processes look old.
type hostEntries[S any] struct {
	swept time.Time
	order []*Entry[S]
}

// NewTable asks forget, about once a minute of a host's event time, whether a process that has been
// silent that long may go; nil keeps all.
func NewTable[S any](forget func(e *Entry[S], silent time.Duration) bool) *Table[S] {
	return &Table[S]{forget: forget, entries: map[schema.ProcessID]*Entry[S]{}, hosts: map[snapshot.HostID]*hostEntries[S]{}}
}

// OnForget has gone called with every entry that the table lets go, for a fold that keeps something
// of a process outside its State.
func (t *Table[S]) OnForget(gone func(e *Entry[S])) { t.onForget = gone }

// Threads gives the entry of each of the batch's threads, making entries of new processes. The
// slice is reused by the next call. It also sweeps out processes that were silent for too long;
// those of this batch stay.
func (t *Table[S]) Threads(b *schema.Batch) []*Entry[S] {
	t.trim()
	now := b.Wall(b.Last)
	t.threads = t.threads[:0]
	if b.Events == 0 {
		now = time.Time{} // a batch without events tells no time
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
		t.newest(b)
	}
	if b.Events > 0 && now.Sub(h.swept).Abs() > time.Minute { // before it: that time was wrong
		t.sweep(h, now)
	}
	return t.threads
}

// Names reports whether the batch that Threads was last called with names a process.
func (t *Table[S]) Names(e *Entry[S]) bool { return e.seen == t.batches }

func (t *Table[S]) host(id snapshot.HostID) *hostEntries[S] {
	h := t.hosts[id]
	if h == nil {
		h = &hostEntries[S]{}
		t.hosts[id] = h
	}
	return h
}

// entry is that of one row of the batch's processes. again says that an earlier row was the same
// process's: it changed its name, or its image, within the batch.
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
	t.order = append(t.order, e)
	h.order = append(h.order, e)
}

// newest describes every process as its last event in the batch does: dictionaries are in order of
// first use, so that a process which took a name and gave it up again is not told by their order.
func (t *Table[S]) newest(b *schema.Batch) {
	t.column = b.Thread().Values(t.column, b.Events)
	for _, thread := range t.column {
		row := b.Threads[thread].Process
		if e := t.threads[thread]; e.row != row {
			e.row = row
			e.update(&b.Processes[row])
		}
	}
}

// Len is the number of processes known.
func (t *Table[S]) Len() int { return len(t.entries) }

// All are the processes in order of first sight; the slice is the table's own.
func (t *Table[S]) All() []*Entry[S] {
	t.sort()
	if len(t.order) != len(t.entries) {
		t.compact()
	}
	return t.order
}

// sweep forgets what the fold lets go among one host's processes.
func (t *Table[S]) sweep(h *hostEntries[S], now time.Time) {
	h.swept = now
	for _, e := range h.order {
		if !e.gone && t.forget != nil && t.forget(e, now.Sub(e.Last)) {
			t.drop(e)
		}
	}
	h.compact()
	if len(t.order) > 2*len(t.entries) {
		t.compact()
	}
}

// Forget lets go of a host and all its processes, between two batches.
func (t *Table[S]) Forget(id snapshot.HostID) {
	for _, e := range t.Of(id) {
		t.drop(e)
	}
	delete(t.hosts, id)
	if len(t.order) > 2*len(t.entries) {
		t.compact()
	}
}

// trim brings the table back below its bound, by as much as makes looking through all of it rare: whoever ended goes before
// whoever runs, and of these who was seen first. It runs before a batch's entries are handed out, never after.
func (t *Table[S]) trim() {
	if len(t.entries) <= MaxProcesses {
		return
	}
	t.sort()
	for _, running := range []bool{false, true} {
		for _, e := range t.order {
			if len(t.entries) > trimmed && !e.gone && (running || e.Ended) {
				t.drop(e)
			}
		}
	}
	t.compact()
	for _, h := range t.hosts {
		h.compact()
	}
}

func (t *Table[S]) drop(e *Entry[S]) {
	e.gone = true
	delete(t.entries, e.ID)
	if t.onForget != nil {
		t.onForget(e)
	}
}

func (t *Table[S]) compact() { t.order = slices.DeleteFunc(t.order, isGone) }

func (h *hostEntries[S]) compact() { h.order = slices.DeleteFunc(h.order, isGone) }

func isGone[S any](e *Entry[S]) bool { return e.gone }
