package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

var words = regexp.MustCompile("(CUDA|[A-Z][a-z]+|[A-Z]+)")

// cName converts the name of a Go field to C: CUDAStream to cuda_stream.
func cName(field string) string {
	return strings.ToLower(strings.Trim(strings.ReplaceAll(words.ReplaceAllString(field, "_$1"), "__", "_"), "_"))
}

// TestGoRecordsMatchEventHeader compiles event.h with the C compiler and compares each offset with Go's.
func TestGoRecordsMatchEventHeader(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal("this test needs gcc: apt-get install gcc")
	}
	type pair struct {
		c string
		g uintptr
	}
	rows := []pair{
		{"LOST_CAUSES", LostCauses}, {
			"RECORD_MEMORY", uintptr(RecordMemory),
		}, {"RECORD_TENSOR", uintptr(RecordTensor)},
		{"COOKIE_SHAPE", CookieShape}, {"COOKIE_STREAM", CookieStream}, {"COOKIE_PER_THREAD", CookiePerThread},
		{"COOKIE_QUIET", CookieQuiet}, {"NAME_BYTES", NameBytes},
	}
	for name, record := range map[string]any{
		"head": Head{}, "memory_record": MemoryRecord{}, "array_record": ArrayRecord{}, "launch_record": LaunchRecord{},
		"copy_record": CopyRecord{}, "sync_record": SyncRecord{}, "thread_record": ThreadRecord{},
		"name_record":   NameRecord{},
		"device_record": DeviceRecord{}, "graph_record": GraphRecord{}, "coverage_record": CoverageRecord{},
		"tensor_record": TensorRecord{},
		"cpu":           cpu{},
	} {
		rows = append(rows, pair{"sizeof(struct " + name + ")", reflect.TypeOf(record).Size()})
		for _, f := range reflect.VisibleFields(reflect.TypeOf(record)) {
			if f.Anonymous || f.Name == "_" || len(f.Index) > 1 { // the head is a row of its own
				continue
			}
			rows = append(rows, pair{fmt.Sprintf("offsetof(struct %s, %s)", name, cName(f.Name)), f.Offset})
		}
	}
	shapes, err := os.ReadFile("../schema/call.go")
	if err != nil {
		t.Fatal(err)
	}
	boundary := regexp.MustCompile(`([a-z])([A-Z0-9])`)
	for shape, m := range regexp.MustCompile(`(?m)^\t(Shape\w+) `).FindAllSubmatch(shapes, -1) {
		if shape != int(schema.ShapeNone) {
			name := boundary.ReplaceAllString(string(m[1]), "${1}_$2")
			rows = append(rows, pair{strings.ToUpper(name), uintptr(shape)})
		}
	}
	rows = append(rows, pair{"SHAPES", uintptr(schema.NumShapes)})
	var source, want strings.Builder
	source.WriteString(`#include <stddef.h>
#include <stdio.h>
#include <linux/types.h>
#include "event.h"
struct cpu { __u64 lost[LOST_CAUSES]; __u32 bulk_since_wake; __u32 control_since_wake, tensors_since_wake, zero; };
int main(void) {
`)
	for _, row := range rows {
		fmt.Fprintf(&source, "printf(\"%s %%zu\\n\", (size_t)(%s));\n", row.c, row.c)
		fmt.Fprintf(&want, "%s %d\n", row.c, row.g)
	}
	source.WriteString("return 0; }\n")
	dir := t.TempDir()
	file, program := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-I.", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("compile event.h: %v\n%s", err, out)
	}
	got, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("event.h and record.go differ\nC:\n%s\nGo:\n%s", got, want.String())
	}
}
