package process

import (
	"cmp"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// SaveShard writes the state that belongs to no host.
func (t *Table[S]) SaveShard(w *snapshot.Writer) { w.Uint(t.next) }

// RestoreShard reads what SaveShard wrote.
func (t *Table[S]) RestoreShard(r *snapshot.Reader) { t.next = max(t.next, r.Uint()) }

// Hosts adds the hosts of the table to the set.
func (t *Table[S]) Hosts(to map[snapshot.HostID]bool) {
	for id := range t.hosts {
		to[id] = true
	}
}

// Of returns the processes of one host in order of first sight.
func (t *Table[S]) Of(id snapshot.HostID) []*Entry[S] {
	h := t.hosts[id]
	if h == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(h.order), func(e *Entry[S]) bool { return e.gone })
}

// SaveHost writes the processes of one host. It calls state for each process, to write the fold's own state.
func (t *Table[S]) SaveHost(w *snapshot.Writer, id snapshot.HostID, state func(e *Entry[S])) {
	h := t.hosts[id]
	w.Bool(h != nil)
	if h == nil {
		return
	}
	w.Time(h.swept)
	all := t.Of(id)
	w.Uint(uint64(len(all)))
	before := uint64(0)
	for _, e := range all {
		w.Uint(e.first - before)
		before = e.first
		e.save(w)
		state(e)
	}
}

// RestoreHost reads what SaveHost wrote. It calls state for each process after adding it to the table.
func (t *Table[S]) RestoreHost(r *snapshot.Reader, id snapshot.HostID, state func(e *Entry[S])) {
	if !r.Bool() {
		return
	}
	if t.hosts[id] != nil {
		r.Fail("the host has been restored already")
		return
	}
	h := t.host(id)
	h.swept = r.Time()
	first := uint64(0)
	for i := range r.Each(leastEntry) {
		more := r.Uint()
		if i > 0 && more == 0 || first+more < first || first+more+1 == 0 {
			r.Fail("processes are out of order")
			return
		}
		first += more
		e := &Entry[S]{first: first}
		e.restore(r, id)
		if t.entries[e.ID] != nil {
			r.Fail("process %d appears twice", e.ID.PID)
		}
		if r.Err() != nil {
			return
		}
		t.next = max(t.next, first+1)
		t.add(h, e)
		t.restored = true
		state(e)
	}
}

// leastEntry is the smallest size of an entry in bytes.
const leastEntry = 17

func (e *Entry[S]) save(w *snapshot.Writer) {
	e.Save(w)
	w.Time(e.Last)
	w.Bool(e.Ended)
	e.Calls.save(w)
}

func (e *Entry[S]) restore(r *snapshot.Reader, host snapshot.HostID) {
	e.Info = RestoreInfo(r, host)
	e.Last, e.Ended = r.Time(), r.Bool()
	e.Calls.restore(r)
}

func (c Calls) save(w *snapshot.Writer) {
	w.Uint(uint64(len(c)))
	for i := range c {
		call := &c[i]
		w.String(call.Symbol)
		w.String(call.Op.String())
		w.Uint(call.OK)
		w.Uint(call.Failed)
		w.Uint(call.Recorded)
		w.Uint(uint64(len(call.Errors)))
		for _, result := range slices.Sorted(maps.Keys(call.Errors)) {
			w.Uint(uint64(result))
			w.Uint(call.Errors[result])
		}
	}
}

func (c *Calls) restore(r *snapshot.Reader) {
	for i := range r.Each(6) {
		if i == maxCalls {
			r.Fail("more than %d calls", maxCalls)
			return
		}
		call := Call{Symbol: r.String(), Op: ops[r.String()], OK: r.Uint(), Failed: r.Uint(), Recorded: r.Uint()}
		for range r.Each(2) {
			if call.Errors == nil {
				call.Errors = map[uint32]uint64{}
			}
			result := r.Uint32()
			call.Errors[result] = r.Uint()
		}
		*c = append(*c, call)
	}
}

// Operations, classes and directions are saved as words, as on the wire, because their numbers may change between
// versions. An unknown word is read as unknown.
var (
	ops        = words[schema.Op](int(schema.NumOps))
	classes    = words[schema.MemClass](int(schema.NumClasses))
	directions = words[schema.Direction](int(schema.NumDirections))
)

func words[W interface {
	~uint8
	String() string
}](n int) map[string]W {
	index := map[string]W{}
	for i := range n {
		index[W(i).String()] = W(i)
	}
	return index
}

// RestoreClass reads the word of a memory class.
func RestoreClass(r *snapshot.Reader) schema.MemClass { return classes[r.String()] }

// Direction returns the direction with this word.
func Direction(word string) schema.Direction { return directions[word] }

// RestoreLabel reads a string that Label returned.
func RestoreLabel(r *snapshot.Reader) string {
	s := r.String()
	if !utf8.ValidString(s) {
		r.Fail("label %q is not valid UTF-8", s)
	}
	return s
}

// SaveRef writes a row of a call dictionary.
func SaveRef(w *snapshot.Writer, ref *schema.CallRef) {
	w.String(ref.Symbol)
	w.String(ref.Op.String())
	w.String(ref.Class.String())
	w.String(ref.Direction.String())
}

// RestoreRef reads what SaveRef wrote.
func RestoreRef(r *snapshot.Reader) schema.CallRef {
	return schema.CallRef{Symbol: r.String(), Op: ops[r.String()], Class: RestoreClass(r),
		Direction: Direction(r.String())}
}

// sort puts restored processes in order of first sight.
func (t *Table[S]) sort() {
	if !t.restored {
		return
	}
	t.restored = false
	slices.SortStableFunc(t.order, func(a, b *Entry[S]) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.ID.Cluster, b.ID.Cluster),
			cmp.Compare(a.ID.Host, b.ID.Host))
	})
}
