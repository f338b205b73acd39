package process

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// coverage counts the functions that one process got from the driver by name or in tables, without probes.
type coverage struct {
	asked   uint32
	outside []string // symbols without a probe that work on memory or submit work
	tables  uint32
	unseen  func(name string, address uint64) string // of this process; nil until its first question
}

const (
	maxOutside = 64   // symbols reported of one process
	maxCovered = 1024 // processes in a heartbeat
)

// note takes one address that the program asked for by name, or one table of unnamed functions.
func (c *coverage) note(r *bpf.CoverageRecord, pid uint32, libraries Libraries) {
	if schema.Calls[r.Call].Shape == schema.ShapeExportTable {
		c.tables++
		return
	}
	c.asked++
	if c.unseen == nil {
		c.unseen = libraries.Unseen(pid)
	}
	symbol := c.unseen(unix.ByteSliceToString(r.Name[:]), r.Address)
	if symbol != "" && len(c.outside) < maxOutside && !slices.Contains(c.outside, symbol) {
		c.outside = append(c.outside, symbol)
	}
}

// AddCoverage adds the coverage of all processes to a heartbeat, up to a size in bytes.
func (t *Table) AddCoverage(b *schema.Builder, maxBytes int) {
	for _, p := range t.byPID {
		c := &p.coverage
		if c.asked+c.tables == 0 {
			continue
		}
		if len(b.Coverage) == maxCovered || b.Size() >= maxBytes {
			return
		}
		b.Coverage = append(b.Coverage, schema.Coverage{
			Process: b.Process(p.Process), Asked: c.asked, Outside: c.outside, ExportTables: c.tables,
		})
	}
}
