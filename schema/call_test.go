package schema_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

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
	async := c.Op == schema.OpCopyAsync || c.Op == schema.OpSetAsync || strings.HasSuffix(c.Symbol, "_ptsz")
	copies := c.Op == schema.OpCopy || c.Op == schema.OpCopyAsync
	inStruct := c.Shape == schema.ShapeLaunchEx || strings.HasPrefix(c.Symbol, "cuGraphInstantiate")
	switch {
	case c.CUDAStream != 0 && shapes[c.Shape].cudaStream != c.CUDAStream && c.Shape != schema.ShapeCopyBatch:
		return fmt.Sprintf("argument %d of shape %s is no CUDA stream", c.CUDAStream, shapes[c.Shape].name)
	case async && c.CUDAStream == 0 && !inStruct:
		return "it names a CUDA stream, which is left out"
	case (c.Direction != schema.DirNone) != copies:
		return "copies, and only they, have a direction"
	case c.Class != schema.ClassNone && c.Kind != schema.KindMemory:
		return "memory calls, and only they, have a class"
	case strings.HasSuffix(c.Symbol, "_ptds") && c.Op != schema.OpCopy && c.Op != schema.OpSet:
		return "_ptds is the suffix of synchronous calls"
	case (c.Unit != 0) != (c.Op == schema.OpSet || c.Op == schema.OpSetAsync):
		return "sets, and only they, count elements"
	}
	return ""
}

// shapes lists the constants of call.go, and which argument is the CUDA stream according to the comment (0: none).
var shapes = func() (list []struct {
	name       string
	cudaStream uint8
}) {
	source, err := os.ReadFile("call.go")
	if err != nil {
		panic(err)
	}
	constant := regexp.MustCompile(`(?m)^\tShape(\w+) .*?(?:// \(.*?(?:\ba(\d) CUDA stream.*)?)?$`)
	for _, m := range constant.FindAllStringSubmatch(string(source), -1) {
		list = append(list, struct {
			name       string
			cudaStream uint8
		}{name: m[1]})
		if m[2] != "" {
			list[len(list)-1].cudaStream = m[2][0] - '0'
		}
	}
	return list
}()

// TestTwinsAreEqual: _ptsz and _ptds change what CUDA stream 0 means and nothing else.
func TestTwinsAreEqual(t *testing.T) {
	bySymbol := map[string]schema.Call{}
	for _, c := range schema.Calls {
		bySymbol[c.Symbol] = c
	}
	twins := 0
	for symbol, c := range bySymbol {
		c.Symbol = strings.TrimSuffix(strings.TrimSuffix(symbol, "_ptds"), "_ptsz")
		if c.Symbol == symbol {
			continue
		}
		twins++
		if base := bySymbol[c.Symbol]; base != c {
			t.Errorf("%s is %+v, and its twin %+v", symbol, c, base)
		}
	}
	if twins < 60 {
		t.Errorf("only %d twins", twins)
	}
}

// TestCallsNeverMove pins the rows. -update appends new ones to calls.txt.
func TestCallsNeverMove(t *testing.T) {
	if len(shapes) != int(schema.NumShapes) || schema.Calls[schema.CallExec].Symbol != "process_exec" ||
		schema.Calls[schema.CallExit].Symbol != "process_exit" {
		t.Fatalf("rows 0 and 1 are exec and exit; %d shapes", len(shapes))
	}
	var w strings.Builder
	for id, c := range schema.Calls {
		fmt.Fprintf(&w, "%d %s %s %s %s\n", id, c.Symbol, c.Kind, c.Op, shapes[c.Shape].name)
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
		{"an event record for launches", "cuEventRecord", []schema.Kind{schema.KindLaunch}, true},
		{"an event query for launches", "cuEventQuery", []schema.Kind{schema.KindLaunch}, false},
		{"a graph launch for memory", "cuGraphLaunch", []schema.Kind{schema.KindMemory}, true},
		{"a capture for waits", "cuStreamEndCapture", []schema.Kind{schema.KindSync}, false},
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
	for op := schema.OpUnknown; op < schema.NumOps; op++ {
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
	if got := schema.Op(200).String() + " " + schema.Loss(200).String() + " " +
		schema.Kind(200).String(); got != "unknown other " {
		t.Errorf("words of unknown numbers: %q", got)
	}
}
