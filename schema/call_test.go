package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// arguments is how many C arguments each shape reads, and which of them may be the CUDA stream.
var arguments = map[schema.Shape]struct {
	count  uint8
	stream uint8
}{
	"":                      {0, 0},
	schema.ShapeAlloc:       {3, 3},
	schema.ShapeAllocPitch:  {4, 0},
	schema.ShapeFree:        {2, 2},
	schema.ShapeCreate:      {4, 0},
	schema.ShapeMap:         {4, 0},
	schema.ShapeUnmap:       {2, 0},
	schema.ShapeLaunch:      {9, 9},
	schema.ShapeLaunchEx:    {2, 0},
	schema.ShapeGraphLaunch: {2, 2},
	schema.ShapeCopy:        {4, 4},
	schema.ShapeName:        {3, 0},
	schema.ShapeAlias:       {2, 0},
	schema.ShapePrimary:     {2, 0},
	schema.ShapeContext:     {1, 0},
	schema.ShapeUUID:        {2, 0},
}

// shapes is which shapes an operation may have.
var shapes = map[schema.Op][]schema.Shape{
	schema.OpAlloc:       {schema.ShapeAlloc, schema.ShapeAllocPitch},
	schema.OpFree:        {schema.ShapeFree},
	schema.OpCreate:      {schema.ShapeCreate},
	schema.OpRelease:     {schema.ShapeFree},
	schema.OpMap:         {schema.ShapeMap},
	schema.OpUnmap:       {schema.ShapeUnmap},
	schema.OpExec:        {""},
	schema.OpExit:        {""},
	schema.OpLaunch:      {schema.ShapeLaunch, schema.ShapeLaunchEx},
	schema.OpGraphLaunch: {schema.ShapeGraphLaunch},
	schema.OpCopy:        {schema.ShapeCopy},
	schema.OpCopyAsync:   {schema.ShapeCopy},
	schema.OpName:        {schema.ShapeName},
	schema.OpAlias:       {schema.ShapeAlias},
	schema.OpPrimary:     {schema.ShapePrimary},
	schema.OpContext:     {schema.ShapeContext},
	schema.OpUUID:        {schema.ShapeUUID},
}

func TestCallsAreConsistent(t *testing.T) {
	seen := map[string]bool{}
	for id := range schema.Calls {
		c := &schema.Calls[id]
		if err := inconsistency(c); err != "" {
			t.Errorf("row %d, %s: %s", id, c.Symbol, err)
		}
		if seen[c.Symbol] {
			t.Errorf("row %d: %s is a row already", id, c.Symbol)
		}
		seen[c.Symbol] = true
	}
}

func inconsistency(c *schema.Call) string {
	args, ok := arguments[c.Shape]
	if !ok {
		return "unknown shape " + string(c.Shape)
	}
	shaped := false
	for _, s := range shapes[c.Op] {
		shaped = shaped || s == c.Shape
	}
	async := c.Op == schema.OpCopyAsync || c.Class == schema.ClassPool || c.Shape == schema.ShapeLaunch || c.Op == schema.OpGraphLaunch
	switch {
	case !shaped:
		return fmt.Sprintf("op %s has no shape %q", c.Op, c.Shape)
	case c.CUDAStream != 0 && c.CUDAStream != args.stream:
		return fmt.Sprintf("argument %d of shape %q is no CUDA stream", c.CUDAStream, c.Shape)
	case c.CUDAStream > args.count:
		return "the CUDA stream is beyond the arguments"
	case async != (c.CUDAStream != 0):
		return "has a CUDA stream or not: the other was expected"
	case c.Kind != kindOf(c.Op):
		return fmt.Sprintf("op %s does not travel in %q batches", c.Op, c.Kind)
	case (c.Direction != schema.DirNone) != (c.Kind == schema.KindCopy):
		return "copies, and only they, have a direction"
	case (c.Class != schema.ClassNone) != (c.Kind == schema.KindMemory && c.Shape != ""):
		return "memory calls, and only they, have a class"
	case strings.HasSuffix(c.Symbol, "_ptds") && c.Op != schema.OpCopy:
		return "_ptds is the suffix of synchronous calls"
	}
	return ""
}

func kindOf(op schema.Op) schema.Kind {
	switch op {
	case schema.OpAlloc, schema.OpFree, schema.OpCreate, schema.OpRelease, schema.OpMap, schema.OpUnmap, schema.OpExec, schema.OpExit:
		return schema.KindMemory
	case schema.OpLaunch, schema.OpGraphLaunch:
		return schema.KindLaunch
	case schema.OpCopy, schema.OpCopyAsync:
		return schema.KindCopy
	case schema.OpSync:
		return schema.KindSync
	}
	return schema.KindNone
}

// TestCallsNeverMove pins the rows that were released: recordings of BPF cookies and metrics by
// call id outlive a release. New rows are appended to calls.txt with -update.
func TestCallsNeverMove(t *testing.T) {
	if schema.Calls[schema.CallExec].Symbol != "process_exec" || schema.Calls[schema.CallExit].Symbol != "process_exit" {
		t.Fatal("rows 0 and 1 are exec and exit")
	}
	var w strings.Builder
	for id, c := range schema.Calls {
		fmt.Fprintf(&w, "%d %s %s %s\n", id, c.Symbol, c.Op, c.Shape)
	}
	path := "testdata/calls.txt"
	if *update {
		write(t, path, []byte(w.String()))
	}
	if pinned := string(read(t, path)); !strings.HasPrefix(w.String(), pinned) {
		t.Errorf("rows moved or changed: the table is\n%s\nand must begin with\n%s", w.String(), pinned)
	} else if len(pinned) != w.Len() {
		t.Errorf("new rows are not pinned: run go test ./schema -update")
	}
}

func TestNeeds(t *testing.T) {
	tests := []struct {
		name   string
		symbol string
		wanted []schema.Kind
		needed bool
	}{
		{"an allocation for memory", "cuMemAlloc_v2", []schema.Kind{schema.KindMemory}, true},
		{"an allocation for launches", "cuMemAlloc_v2", []schema.Kind{schema.KindLaunch}, false},
		{"a launch for launches", "cuLaunchKernel", []schema.Kind{schema.KindLaunch}, true},
		{"a name for launches", "cuModuleGetFunction", []schema.Kind{schema.KindCopy, schema.KindLaunch}, true},
		{"a name for memory", "cuModuleGetFunction", []schema.Kind{schema.KindMemory}, false},
		{"a context for copies", "cuCtxSetCurrent", []schema.Kind{schema.KindCopy}, true},
		{"nothing to probe at exit", "process_exit", []schema.Kind{schema.KindMemory}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wanted := map[schema.Kind]bool{}
			for _, k := range tt.wanted {
				wanted[k] = true
			}
			if got := call(tt.symbol).Needs(wanted); got != tt.needed {
				t.Errorf("Needs = %t, want %t", got, tt.needed)
			}
		})
	}
}

// TestWords: every word of the wire is unique in its list, and an unknown number reads as a word.
func TestWords(t *testing.T) {
	seen := map[string]bool{}
	for k := schema.KindMemory; k < schema.NumKinds; k++ {
		if schema.ParseKind(k.String()) != k {
			t.Errorf("kind %d: %q parses as %d", k, k, schema.ParseKind(k.String()))
		}
	}
	for op := schema.OpUnknown; op <= schema.OpUUID; op++ {
		if seen[op.String()] || op.String() == "" {
			t.Errorf("op %d: word %q", op, op)
		}
		seen[op.String()] = true
	}
	for l := schema.LossControlRing; l < schema.NumLosses; l++ {
		if seen[l.String()] || l.String() == "" {
			t.Errorf("loss %d: word %q", l, l)
		}
		seen[l.String()] = true
	}
	if got := schema.Op(200).String() + " " + schema.Loss(200).String() + " " + schema.Kind(200).String(); got != "unknown other " {
		t.Errorf("words of unknown numbers: %q", got)
	}
}
