package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// entryProgram is the program that stands at the beginning of a call.
func entryProgram(c *schema.Call) string {
	switch c.Shape {
	case schema.ShapeLaunch:
		return bpf.TapProgLaunchEnter
	case schema.ShapeLaunchEx:
		return bpf.TapProgLaunchExEnter
	case schema.ShapeLaunchMulti:
		return bpf.TapProgLaunchMultiEnter
	case schema.ShapeLaunchOne, schema.ShapeLaunchGrid:
		return bpf.TapProgLaunchGridEnter
	case schema.ShapeGraphLaunch:
		return bpf.TapProgGraphLaunchEnter
	case schema.ShapeHostFunc:
		return bpf.TapProgHostFuncEnter
	case schema.ShapeOpen:
		return bpf.TapProgOpenEnter
	case schema.ShapeCopyBatch:
		return bpf.TapProgBatchEnter
	}
	return bpf.TapProgCallEnter
}

// returnProgram is the program that stands at the return of a call, by the record it writes; "" for
// calls that are seen at entry alone.
func returnProgram(c *schema.Call) string {
	switch {
	case c.Shape.EntryOnly():
		return ""
	case c.Shape == schema.ShapeArray, c.Shape == schema.ShapeArray3D, c.Shape == schema.ShapeMipmap:
		return bpf.TapProgArrayExit
	case c.Shape == schema.ShapeEnumerate:
		return bpf.TapProgEnumerateExit
	}
	switch c.Op {
	case schema.OpContextCreate, schema.OpContextDestroy:
		return bpf.TapProgContextLifeExit
	case schema.OpName, schema.OpAlias:
		return bpf.TapProgNameExit
	case schema.OpContext:
		return bpf.TapProgContextExit
	case schema.OpDevice:
		return bpf.TapProgDeviceExit
	case schema.OpCapture, schema.OpGraph, schema.OpExecutable:
		return bpf.TapProgGraphExit
	case schema.OpCoverage:
		return bpf.TapProgCoverageExit
	case schema.OpStreamCreate, schema.OpStreamDestroy: // in order with what uses the CUDA stream
		return bpf.TapProgMemoryExit
	}
	switch c.Kind {
	case schema.KindCopy:
		return bpf.TapProgCopyExit
	case schema.KindSync:
		return bpf.TapProgSyncExit
	}
	return bpf.TapProgMemoryExit
}

// recordTypes is the record that each call's programs write; 0: none.
var recordTypes = func() []uint16 {
	types := make([]uint16, len(schema.Calls))
	byReturn := map[string]uint16{
		bpf.TapProgMemoryExit: bpf.RecordMemory, bpf.TapProgContextLifeExit: bpf.RecordMemory, bpf.TapProgArrayExit: bpf.RecordArray,
		bpf.TapProgCopyExit: bpf.RecordCopy, bpf.TapProgSyncExit: bpf.RecordSync, bpf.TapProgGraphExit: bpf.RecordGraph,
		bpf.TapProgNameExit: bpf.RecordName, bpf.TapProgEnumerateExit: bpf.RecordName, bpf.TapProgDeviceExit: bpf.RecordDevice, bpf.TapProgCoverageExit: bpf.RecordCoverage,
	}
	for id := range schema.Calls {
		switch c := &schema.Calls[id]; {
		case c.Shape == schema.ShapeNone:
			types[id] = bpf.RecordEnd
		case c.Shape.EntryOnly():
			types[id] = bpf.RecordLaunch
		default:
			types[id] = byReturn[returnProgram(c)]
		}
	}
	return types
}()

// features are the kinds that somebody wants events of.
type features struct {
	kinds       map[schema.Kind]bool
	entriesOnly bool // no return probe is safe here: what needs one is left out
}

// leavesOut reports whether a call of the table is not probed because no wanted kind needs it.
func (f features) leavesOut(symbol string) bool {
	for i := range schema.Calls {
		if c := &schema.Calls[i]; c.Symbol == symbol {
			return !c.Needs(f.kinds)
		}
	}
	return false
}

// cookie is what a probe of a call hands to its programs. CUDA events are followed, since they spread
// captures, even when nobody wants to see them.
func (f features) cookie(id schema.CallID) uint64 {
	c := &schema.Calls[id]
	v := uint64(id) | uint64(c.Shape)<<bpf.CookieShape | uint64(c.CUDAStream)<<bpf.CookieStream
	if c.PerThread() {
		v |= bpf.CookiePerThread
	}
	if c.Kind == schema.KindSync && !f.kinds[schema.KindSync] {
		v |= bpf.CookieQuiet
	}
	return v
}

// calls are the rows of the call table that the features need.
func (f features) calls() []schema.CallID {
	var ids []schema.CallID
	for id := range schema.Calls {
		if schema.Calls[id].Needs(f.kinds) && (!f.entriesOnly || schema.Calls[id].Shape.EntryOnly()) {
			ids = append(ids, schema.CallID(id))
		}
	}
	return ids
}

// everything is all features.
var everything = newFeatures([]schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync})

func newFeatures(kinds []schema.Kind) features {
	f := features{kinds: map[schema.Kind]bool{}}
	for _, k := range kinds {
		f.kinds[k] = true
	}
	return f
}
