package producer

import (
	"slices"
	"strings"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// coverage is what one process got from the driver besides the probed functions.
type coverage struct {
	asked   uint32
	outside []string // symbols without a probe that work on memory or submit work
	tables  uint32
	images  []image // where its driver libraries are mapped; nil not looked up yet
}

// addresses tells what stands at a place in a driver library.
type addresses interface {
	// symbolAt is the exported function at an offset of a library file, and whether it is probed; ""
	// when no exported function begins there, and false when the library is not known.
	symbolAt(library inode, offset uint64) (symbol string, probed, known bool)
}

// mostOutside bounds the symbols told of one process.
const mostOutside = 64

// note is called for each address that the program asked for by name, and each table of unnamed functions.
func (c *coverage) note(r *bpf.CoverageRecord, pid uint32, libraries addresses) {
	if schema.Calls[r.Call].Shape == schema.ShapeExportTable {
		c.tables++
		return
	}
	c.asked++
	name := text(r.Name[:])
	if !matters(name) || r.Address == 0 || libraries == nil {
		return
	}
	if c.images == nil {
		c.images = driverImages(pid)
	}
	for _, i := range c.images {
		if r.Address < i.start || r.Address >= i.end {
			continue
		}
		symbol, probed, known := libraries.symbolAt(i.inode, r.Address-i.start+i.offset)
		switch {
		case !known:
			return
		case symbol == "":
			symbol = name + " (not exported)"
		}
		if !probed {
			c.add(symbol)
		}
		return
	}
	c.add(name + " (outside the driver)")
}

func (c *coverage) add(symbol string) {
	if len(c.outside) < mostOutside && !slices.Contains(c.outside, symbol) {
		c.outside = append(c.outside, symbol)
	}
}

// matters reports whether a function of the driver works on memory or submits work: those are what
// gputap claims to see. Queries, attributes and advice are not.
func matters(name string) bool {
	for _, prefix := range []string{"cuMemGet", "cuMemPoolGet", "cuMemPoolSet", "cuMemRange", "cuMemAdvise", "cuMemSetMemPool", "cuMemHostGet"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	for _, prefix := range []string{
		"cuMem", "cuLaunch", "cuGraphLaunch", "cuGraphAdd", "cuArrayCreate", "cuArray3DCreate", "cuArrayDestroy",
		"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", "cuIpc", "cuImportExternalMemory", "cuMulticast", "cuCtxCreate",
		"cuCtxDestroy", "cuDevicePrimaryCtxRe",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// mostCovered bounds the processes of a heartbeat.
const mostCovered = 1024

// coverage puts into a heartbeat what processes got from the driver unseen, up to a size.
func (p *processes) coverage(b *schema.Builder, mostBytes int) {
	for _, q := range p.byPID {
		c := &q.coverage
		if c.asked+c.tables == 0 {
			continue
		}
		if len(b.Coverage) == mostCovered || b.Size() >= mostBytes {
			return
		}
		b.Coverage = append(b.Coverage, schema.Coverage{
			Process: b.Process(q.Process), Asked: c.asked, Outside: c.outside, ExportTables: c.tables,
		})
	}
}
