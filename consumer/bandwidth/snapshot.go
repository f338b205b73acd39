package bandwidth

import (
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Snapshot passes the state to yield, one section per host. The goroutine that calls Apply calls Snapshot.
func (m *Meter) Snapshot(yield func(snapshot.Section) error) error {
	hosts := slices.Concat(m.processes.Hosts(), m.moves.Hosts(), m.ended.Hosts(), m.waits.Hosts(), m.rates.Hosts())
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
	m.ended.CodeOthers(c, 5, func(k *series) { k.codeRow(c) })
	m.waits.CodeOthers(c, 2, func(*process.Workload) {})
	size := func(k *sizeKey) {
		process.CodeLabels(c, &k.comm)
		codeRow(c, &k.row)
		c.Bool(&k.async)
	}
	m.sizes.CodeOthers(c, 13, size)
	m.sizes.CodeHost(c, snapshot.HostID{}, 13, size)
	m.rates.CodeOthers(c, 6, func(k *rateKey) { codeRow(c, &k.row) })
}

func (m *Meter) codeHost(c *snapshot.Codec, id snapshot.HostID) {
	m.moves.CodeHost(c, id, process.MinWorkload+5, func(k *series) {
		k.Code(c, id)
		k.codeRow(c)
	})
	m.ended.CodeHost(c, id, process.MinWorkload+5, func(k *series) {
		k.Code(c, id)
		k.codeRow(c)
	})
	m.rates.CodeHost(c, id, 8, func(k *rateKey) {
		k.HostID = id
		process.CodeLabels(c, &k.gpu, &k.uuid)
		codeRow(c, &k.row)
	})
	m.waits.CodeHost(c, id, process.MinWorkload+2, func(w *process.Workload) { w.Code(c, id) })
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

// code passes over the rows.
func (s *state) code(c *snapshot.Codec) {
	s.waits.Code(c)
	snapshot.Uint(c, &s.recorded)
	snapshot.Map(c, &s.rows, 16, rowKey.compare, func(k *rowKey, r **row) {
		c.String(&k.gpu)
		codeRow(c, &k.row)
		snapshot.Uint(c, &k.class)
		process.CodeWord(c, &k.hostMem, schema.ParseHostMem)
		if k.class >= NumSizeClasses {
			c.Fail("size class %d", k.class)
		}
		if c.Reading() {
			*r = &row{}
		}
		(*r).sync.Code(c)
		(*r).async.Code(c)
		(*r).ended.Code(c)
		(*r).behind.Code(c)
	})
}
