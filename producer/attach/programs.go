package attach

import (
	"cmp"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// programs are the BPF programs of a call, and the type of the records that they write.
type programs struct {
	entry string
	exit  string // "" for calls that are seen at entry alone
	kind  uint16 // bpf.Record…
}

// programsOfShape has the shapes with programs of their own. Where kind is 0, the op decides what runs at the return.
var programsOfShape = map[schema.Shape]programs{
	schema.ShapeNone:        {kind: bpf.RecordEnd}, // a process event: no call of a library
	schema.ShapeLaunch:      {entry: bpf.TapProgLaunchEnter, kind: bpf.RecordLaunch},
	schema.ShapeLaunchEx:    {entry: bpf.TapProgLaunchExEnter, kind: bpf.RecordLaunch},
	schema.ShapeLaunchMulti: {entry: bpf.TapProgLaunchMultiEnter, kind: bpf.RecordLaunch},
	schema.ShapeLaunchOne:   {entry: bpf.TapProgLaunchGridEnter, kind: bpf.RecordLaunch},
	schema.ShapeLaunchGrid:  {entry: bpf.TapProgLaunchGridEnter, kind: bpf.RecordLaunch},
	schema.ShapeGraphLaunch: {entry: bpf.TapProgGraphLaunchEnter, kind: bpf.RecordLaunch},
	schema.ShapeHostFunc:    {entry: bpf.TapProgHostFuncEnter, kind: bpf.RecordLaunch},
	schema.ShapeArray:       {bpf.TapProgCallEnter, bpf.TapProgArrayExit, bpf.RecordArray},
	schema.ShapeArray3D:     {bpf.TapProgCallEnter, bpf.TapProgArrayExit, bpf.RecordArray},
	schema.ShapeMipmap:      {bpf.TapProgCallEnter, bpf.TapProgArrayExit, bpf.RecordArray},
	schema.ShapeEnumerate:   {bpf.TapProgCallEnter, bpf.TapProgEnumerateExit, bpf.RecordName},
	schema.ShapeOpen:        {entry: bpf.TapProgOpenEnter},
	schema.ShapeCopyBatch:   {entry: bpf.TapProgBatchEnter},
	schema.ShapeBlock:       {entry: bpf.TapProgTensorEnter, kind: bpf.RecordTensor},
}

// programsOf declares which programs record a call: at entry by its shape, at return by its shape and its op. A call of
// a known shape needs no change here.
func programsOf(c *schema.Call) programs {
	p := programsOfShape[c.Shape]
	if p.kind != 0 {
		return p
	}
	p.entry = cmp.Or(p.entry, bpf.TapProgCallEnter)
	p.exit, p.kind = exitOf(c)
	return p
}

// exitOf returns the program at the return of a call, by its op and kind.
func exitOf(c *schema.Call) (program string, kind uint16) {
	switch c.Op {
	case schema.OpContextCreate, schema.OpContextDestroy:
		return bpf.TapProgContextLifeExit, bpf.RecordMemory
	case schema.OpName, schema.OpAlias:
		return bpf.TapProgNameExit, bpf.RecordName
	case schema.OpContext: // it changes the thread's current context and writes no record
		return bpf.TapProgContextExit, 0
	case schema.OpDevice:
		return bpf.TapProgDeviceExit, bpf.RecordDevice
	case schema.OpCapture, schema.OpGraph, schema.OpExecutable:
		return bpf.TapProgGraphExit, bpf.RecordGraph
	case schema.OpCoverage:
		return bpf.TapProgCoverageExit, bpf.RecordCoverage
	case schema.OpStreamCreate, schema.OpStreamDestroy: // in one order with the calls that use the CUDA stream
		return bpf.TapProgMemoryExit, bpf.RecordMemory
	}
	switch c.Kind {
	case schema.KindCopy:
		return bpf.TapProgCopyExit, bpf.RecordCopy
	case schema.KindSync:
		return bpf.TapProgSyncExit, bpf.RecordSync
	}
	return bpf.TapProgMemoryExit, bpf.RecordMemory
}

// RecordTypes maps each call to the type of the record that its programs write; 0: none.
var RecordTypes = func() []uint16 {
	types := make([]uint16, len(schema.Calls))
	for id := range schema.Calls {
		types[id] = programsOf(&schema.Calls[id]).kind
	}
	return types
}()
