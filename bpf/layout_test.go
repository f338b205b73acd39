package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// TestLayout compiles event.h with the C compiler and compares each offset with Go's.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal("gcc is needed: apt-get install gcc")
	}
	var h Head
	var m MemoryRecord
	var l LaunchRecord
	var c CopyRecord
	var r ThreadRecord
	var n NameRecord
	var d DeviceRecord
	var s cpu
	rows := []struct {
		c string
		g uintptr
	}{
		{"sizeof(struct head)", unsafe.Sizeof(h)},
		{"offsetof(struct head, type)", unsafe.Offsetof(h.Type)},
		{"offsetof(struct head, call)", unsafe.Offsetof(h.Call)},
		{"offsetof(struct head, tid)", unsafe.Offsetof(h.TID)},
		{"offsetof(struct head, tgid)", unsafe.Offsetof(h.TGID)},
		{"offsetof(struct head, thread_start)", unsafe.Offsetof(h.ThreadStart)},
		{"offsetof(struct head, time)", unsafe.Offsetof(h.Time)},
		{"offsetof(struct head, cuda_context)", unsafe.Offsetof(h.CUDAContext)},
		{"sizeof(struct memory_record)", unsafe.Sizeof(m)},
		{"offsetof(struct memory_record, duration)", unsafe.Offsetof(m.Duration)},
		{"offsetof(struct memory_record, ptr)", unsafe.Offsetof(m.Ptr)},
		{"offsetof(struct memory_record, bytes)", unsafe.Offsetof(m.Bytes)},
		{"offsetof(struct memory_record, aux)", unsafe.Offsetof(m.Aux)},
		{"offsetof(struct memory_record, result)", unsafe.Offsetof(m.Result)},
		{"offsetof(struct memory_record, device)", unsafe.Offsetof(m.Device)},
		{"sizeof(struct launch_record)", unsafe.Sizeof(l)},
		{"offsetof(struct launch_record, func)", unsafe.Offsetof(l.Func)},
		{"offsetof(struct launch_record, cuda_stream)", unsafe.Offsetof(l.CUDAStream)},
		{"offsetof(struct launch_record, grid)", unsafe.Offsetof(l.Grid)},
		{"offsetof(struct launch_record, block)", unsafe.Offsetof(l.Block)},
		{"offsetof(struct launch_record, shared_bytes)", unsafe.Offsetof(l.SharedBytes)},
		{"sizeof(struct copy_record)", unsafe.Sizeof(c)},
		{"offsetof(struct copy_record, duration)", unsafe.Offsetof(c.Duration)},
		{"offsetof(struct copy_record, dst)", unsafe.Offsetof(c.Dst)},
		{"offsetof(struct copy_record, src)", unsafe.Offsetof(c.Src)},
		{"offsetof(struct copy_record, bytes)", unsafe.Offsetof(c.Bytes)},
		{"offsetof(struct copy_record, cuda_stream)", unsafe.Offsetof(c.CUDAStream)},
		{"offsetof(struct copy_record, result)", unsafe.Offsetof(c.Result)},
		{"sizeof(struct thread_record)", unsafe.Sizeof(r)},
		{"offsetof(struct thread_record, process_start)", unsafe.Offsetof(r.ProcessStart)},
		{"offsetof(struct thread_record, uid)", unsafe.Offsetof(r.UID)},
		{"offsetof(struct thread_record, comm)", unsafe.Offsetof(r.Comm)},
		{"offsetof(struct thread_record, process_comm)", unsafe.Offsetof(r.ProcessComm)},
		{"sizeof(struct name_record)", unsafe.Sizeof(n)},
		{"offsetof(struct name_record, handle)", unsafe.Offsetof(n.Handle)},
		{"offsetof(struct name_record, alias)", unsafe.Offsetof(n.Alias)},
		{"offsetof(struct name_record, name_bytes)", unsafe.Offsetof(n.NameBytes)},
		{"offsetof(struct name_record, name)", unsafe.Offsetof(n.Name)},
		{"sizeof(struct device_record)", unsafe.Sizeof(d)},
		{"offsetof(struct device_record, cuda_context_made)", unsafe.Offsetof(d.CUDAContextMade)},
		{"offsetof(struct device_record, device)", unsafe.Offsetof(d.Device)},
		{"offsetof(struct device_record, uuid)", unsafe.Offsetof(d.UUID)},
		{"sizeof(struct cpu)", unsafe.Sizeof(s)},
		{"RECORD_MEMORY", uintptr(RecordMemory)},
		{"RECORD_COPY", uintptr(RecordCopy)},
		{"LOST_CAUSES", LostCauses},
	}
	var source, want strings.Builder
	source.WriteString(`#include <stddef.h>
#include <stdio.h>
#include <linux/types.h>
#include "event.h"
struct cpu { __u64 lost[LOST_CAUSES]; __u32 bulk_since_wake; __u32 control_since_wake; };
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
