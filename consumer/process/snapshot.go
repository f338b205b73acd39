package process

import (
	"fmt"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// leastEntry is the smallest size of an entry in bytes.
const leastEntry = 17

// CodeShard passes over the state that belongs to no host.
func (t *Table[S]) CodeShard(c *snapshot.Codec) {
	next := t.next
	snapshot.Uint(c, &next)
	t.next = max(t.next, next)
}

// CodeHost passes over the processes of one host. It calls state for each process, to pass over the fold's own state.
func (t *Table[S]) CodeHost(c *snapshot.Codec, id snapshot.HostID, state func(e *Entry[S])) {
	known := t.hosts[id] != nil
	if known && c.Reading() {
		c.Fail("the host has been restored already")
		return
	}
	if c.Bool(&known); !known {
		return
	}
	h, all, first := t.host(id), t.Of(id), uint64(0)
	c.Time(&h.swept)
	snapshot.List(c, &all, leastEntry, func(p **Entry[S]) {
		if c.Reading() {
			*p = &Entry[S]{}
		}
		e := *p
		more := e.first - first
		snapshot.Uint(c, &more)
		if c.Reading() && (len(h.order) > 0 && more == 0 || first+more < first || first+more+1 == 0) {
			c.Fail("processes are out of order")
		}
		first += more
		e.Code(c, id)
		c.Time(&e.Last)
		c.Bool(&e.Ended)
		e.Calls.code(c)
		if c.Reading() && !t.restore(c, h, e, first) {
			return
		}
		state(e)
	})
}

// restore adds a restored entry and reports whether it is valid.
func (t *Table[S]) restore(c *snapshot.Codec, h *hostEntries[S], e *Entry[S], first uint64) bool {
	if t.entries[e.ID] != nil {
		c.Fail("process %d appears twice", e.ID.PID)
	}
	if c.Failed() {
		return false
	}
	e.first = first
	t.next = max(t.next, first+1)
	t.add(h, e)
	return true
}

// CodeWord passes over the word of v. Snapshots hold words, as the wire does, because the numbers of values may change
// between versions. An unknown word is read as unknown.
func CodeWord[W fmt.Stringer](c *snapshot.Codec, v *W, parse func(word string) W) {
	word := (*v).String()
	c.String(&word)
	if c.Reading() {
		*v = parse(word)
	}
}

// CodeRef passes over a row of a call dictionary.
func CodeRef(c *snapshot.Codec, ref *schema.CallRef) {
	c.String(&ref.Symbol)
	CodeWord(c, &ref.Op, schema.ParseOp)
	CodeWord(c, &ref.Class, schema.ParseMemClass)
	CodeWord(c, &ref.Direction, schema.ParseDirection)
}
