package bandwidth

import (
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (m *Meter) Snapshot(yield func(snapshot.Section) error) error {
	hosts := slices.Concat(m.processes.Hosts(), m.moves.Hosts(), m.waits.Hosts())
	return m.form().Save(&m.out, hosts, yield)
}

// Restore restores one section of a snapshot. All calls of Restore come before the first Apply.
func (m *Meter) Restore(section snapshot.Section) error { return m.form().Restore(section) }

func (m *Meter) form() snapshot.Form {
	return snapshot.Form{Fold: "bandwidth", Version: 1, Lock: &m.mu, Shard: m.codeShard, Host: m.codeHost}
}

func (m *Meter) codeShard(c *snapshot.Codec) {
	m.processes.CodeShard(c)
	m.moves.CodeOthers(c, 5, func(k *series) { k.codeRow(c) })
	m.waits.CodeOthers(c, 2, func(*process.Workload) {})
}

func (m *Meter) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	m.moves.CodeHost(c, id, 9, func(k *series) {
		k.Code(c, id)
		k.codeRow(c)
	})
	m.waits.CodeHost(c, id, 6, func(w *process.Workload) { w.Code(c, id) })
	m.processes.CodeHost(c, id, func(e *process.Entry[state]) { e.State.code(c) })
}

func (s *series) codeRow(c *snapshot.Codec) {
	codeRow(c, &s.row)
	c.Bool(&s.async)
}

// codeRow passes over a row: the word of its direction, or "set".
func codeRow(c *snapshot.Codec, row *schema.Direction) {
	word := row.String()
	if *row == rowSet {
		word = "set"
	}
	c.String(&word)
	switch {
	case !c.Reading():
	case word == "set":
		*row = rowSet
	default:
		*row = schema.ParseDirection(word)
	}
}

// Code passes over the sum.
func (s *sum) Code(c *snapshot.Codec) { snapshot.Uint(c, &s.calls, &s.bytes, &s.busy) }

// Code passes over the counts.
func (w *Waits) Code(c *snapshot.Codec) { snapshot.Uint(c, &w.Calls, &w.NS) }

// code passes over the rows in use.
func (s *state) code(c *snapshot.Codec) {
	s.waits.Code(c)
	snapshot.Uint(c, &s.recorded)
	var used []schema.Direction
	for row := range numRows {
		if s.sync[row] != (sum{}) || s.async[row] != (sum{}) {
			used = append(used, row)
		}
	}
	snapshot.List(c, &used, 7, func(row *schema.Direction) {
		codeRow(c, row)
		s.sync[*row].Code(c)
		s.async[*row].Code(c)
	})
}
