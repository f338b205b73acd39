package process

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// handle is a kernel handle as driver 580 has it: the second word points to the name.
type handle struct {
	owner uint64
	name  *byte
}

func newHandle(name string) (*handle, uint64) {
	h := &handle{name: unsafe.StringData(name + "\x00")}
	return h, uint64(uintptr(unsafe.Pointer(h)))
}

func TestNameIsReadFromMemory(t *testing.T) {
	pid := uint32(os.Getpid())
	var keep []*handle
	address := func(name string) uint64 {
		h, at := newHandle(name)
		keep = append(keep, h)
		return at
	}
	tests := []struct {
		name   string
		handle uint64
		layout handleLayout
		want   string
	}{
		{"a name", address("_Z3addPf"), handleLayout{}, "_Z3addPf"},
		{"a name that others confirm", address("triton_poi_fused_0"), handleLayout{agree: 5}, "triton_poi_fused_0"},
		{"others say it is kept elsewhere", address("_Z3addPf"), handleLayout{differ: 9}, ""},
		{"few of many differ", address("_Z3addPf"), handleLayout{agree: 100, differ: 9}, "_Z3addPf"},
		{"no name", address("what is\tthis"), handleLayout{}, ""},
		{"a number", 0x1234, handleLayout{}, ""},
		{"beyond what is mapped", 1 << 46, handleLayout{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.layout.read(pid, tt.handle); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if len(keep) == 0 {
		t.Error("handles must stay reachable")
	}
}

// TestReusedHandleHasNoOldName: a kernel handle that is reused after an unload does not keep its old name.
func TestReusedHandleHasNoOldName(t *testing.T) {
	q := newProcess(schema.Process{PID: uint32(os.Getpid())}, &budget{})
	table := &Table{layout: handleLayout{differ: 100}} // nothing is read
	now := uint64(1)
	report := func(symbol string, handle, module uint64, name string) {
		r := &bpf.NameRecord{Head: bpf.Head{Call: callID(t, symbol), Time: now}, Handle: handle, Module: module,
			NameBytes: uint64(len(name) + 1)}
		copy(r.Name[:], name)
		q.name(r, &table.layout)
	}
	report("cuModuleGetFunction", 0x10, 0x1000, "first")
	report("cuFuncGetName", 0x20, 0, "second")
	report("cuLibraryGetKernel", 0x30, 0x2000, "third")
	q.unload(0x1000, 100)
	for handle, want := range map[uint64][2]string{0x10: {"first", ""}, 0x20: {"second", ""},
		0x30: {"third", "third"}} {
		for i, at := range []uint64{50, 150} {
			if got := table.Function(q, handle, schema.KTime(at)).Name; got != want[i] {
				t.Errorf("handle %#x at %d is %q, want %q", handle, at, got, want[i])
			}
		}
	}
	now = 180
	report("cuModuleGetFunction", 0x10, 0x1000, "again")
	for at, want := range map[schema.KTime]string{200: "again", 90: "first",
		150: ""} { // launches of the old one arrive late
		if got := table.Function(q, 0x10, at).Name; got != want {
			t.Errorf("at %d the handle given out again is %q, want %q", at, got, want)
		}
	}
}

// TestEnumeratedKernelsHaveAModule: a list of a module's kernels gives their module and no names.
func TestEnumeratedKernelsHaveAModule(t *testing.T) {
	q := newProcess(schema.Process{PID: uint32(os.Getpid())}, &budget{})
	table := &Table{layout: handleLayout{differ: 100}}
	named := &bpf.NameRecord{Head: bpf.Head{Call: callID(t, "cuFuncGetName"), Time: 1}, Handle: 0x10, NameBytes: 5}
	copy(named.Name[:], "name")
	q.name(named, &table.layout)
	list := &bpf.NameRecord{Head: bpf.Head{Call: callID(t, "cuModuleEnumerateFunctions"), Time: 2}, Module: 0x1000,
		NameBytes: 16 + 7}
	binary.LittleEndian.PutUint64(list.Name[0:], 0x10)
	binary.LittleEndian.PutUint64(list.Name[8:], 0x20)
	binary.LittleEndian.PutUint64(list.Name[16:], 0x30) // beyond the part that was read
	q.name(list, &table.layout)
	q.unload(0x2000, 10) // another one
	if got := table.Function(q, 0x10, 20).Name; got != "name" {
		t.Errorf("after another module went the kernel is %q", got)
	}
	if q.funcs[0x20] == nil || q.funcs[0x20].module != 0x1000 || q.funcs[0x30] != nil {
		t.Errorf("the list became %v", q.funcs)
	}
	q.unload(0x1000, 30)
	if got := table.Function(q, 0x10, 40).Name; got != "" {
		t.Errorf("after its module went the kernel is %q", got)
	}
	list.Time, list.Module = 50, 0x3000 // reused
	q.name(list, &table.layout)
	if got := table.Function(q, 0x10, 60).Name; got != "" {
		t.Errorf("the handle that was reused is %q", got)
	}
}

// TestLaunchHasTheNameOfItsTime: launches are read after later control records.
func TestLaunchHasTheNameOfItsTime(t *testing.T) {
	q := newProcess(schema.Process{PID: uint32(os.Getpid())}, &budget{})
	table := &Table{layout: handleLayout{differ: 100}}
	report := func(at, handle, alias, module uint64, symbol, name string) {
		r := &bpf.NameRecord{
			Head: bpf.Head{Call: callID(t, symbol), Time: at}, Handle: handle, Alias: alias, Module: module,
		}
		if name != "" {
			r.NameBytes = uint64(len(name) + 1)
			copy(r.Name[:], name)
		}
		q.name(r, &table.layout)
	}
	report(10, 0x10, 0, 0x1000, "cuLibraryGetKernel", "one")
	report(20, 0x20, 0x10, 0, "cuKernelGetFunction", "")
	q.unload(0x1000, 30)
	report(40, 0x10, 0, 0x1000, "cuLibraryGetKernel", "two")
	report(50, 0x20, 0x10, 0, "cuKernelGetFunction", "")
	report(60, 0x5000, 0x2000, 0, "cuLibraryGetModule", "")
	report(70, 0x30, 0, 0x5000, "cuModuleGetFunction", "of a library's module")
	report(75, 0x30, 0, 0, "cuFuncGetName", "of a library's module")
	q.unload(0x7000, 76)
	q.unload(0x2000, 80)
	tests := []struct {
		handle uint64
		at     schema.KTime
		want   string
	}{
		{0x20, 25, "one"}, {0x20, 55, "two"}, {0x10, 15, "one"}, {0x10, 55, "two"}, {0x20, 26, "one"}, {0x20, 35, ""},
		{0x30, 78, "of a library's module"}, {0x30, 90, ""}, {0x30, 79, "of a library's module"},
	}
	for _, tt := range tests {
		if got := table.Function(q, tt.handle, tt.at).Name; got != tt.want {
			t.Errorf("handle %#x at %d is %q, want %q", tt.handle, tt.at, got, tt.want)
		}
	}
	for i := range uint64(10 * maxBefore) {
		report(100+i, 0x40, 0, 0x1000, "cuModuleGetFunction", string(rune('a'+i%2)))
	}
	n := 0
	for f := q.funcs[0x40]; f != nil; f = f.before {
		n++
	}
	if n > 2*maxBefore {
		t.Errorf("%d names are kept of one handle", n)
	}
}
