package attach

import (
	"slices"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/schema"
)

func TestWantedCallsFollowFeatures(t *testing.T) {
	has := func(kinds []schema.Kind, symbol string) bool {
		for _, id := range NewFeatures(kinds, false).calls(schema.DriverLibrary) {
			if schema.Calls[id].Symbol == symbol {
				return true
			}
		}
		return false
	}
	memory := []schema.Kind{schema.KindMemory}
	if !has(memory, "cuMemAlloc_v2") || !has(memory, "cuCtxSetCurrent") {
		t.Error("memory needs allocations and contexts")
	}
	for _, symbol := range []string{"cuLaunchKernel", "cuMemcpyHtoD_v2", "cuLibraryGetKernel", "process_exit"} {
		if has(memory, symbol) {
			t.Errorf("memory alone does not need %s", symbol)
		}
	}
	if !has([]schema.Kind{schema.KindLaunch}, "cuLibraryGetKernel") {
		t.Error("launches need names")
	}
}

// TestReturnProgramUnlessEntryOnly: a call has a return program, and then a record, exactly if its shape needs a
// return.
func TestReturnProgramUnlessEntryOnly(t *testing.T) {
	for i := range schema.Calls {
		c := &schema.Calls[i]
		p := programsOf(c)
		if c.Shape == schema.ShapeNone {
			if p != (programs{kind: bpf.RecordEnd}) {
				t.Errorf("%s is a process event and has %+v", c.Symbol, p)
			}
			continue
		}
		if (p.exit == "") != c.Shape.EntryOnly() || p.entry == "" {
			t.Errorf("%s has %+v", c.Symbol, p)
		}
		if c.Shape.EntryOnly() != (p.kind == bpf.RecordLaunch || p.kind == bpf.RecordTensor) {
			t.Errorf("%s writes records of type %d", c.Symbol, p.kind)
		}
	}
}

// TestTorchLibraryMakesNobodyLate: only a driver library does, and only its users may call the driver.
func TestTorchLibraryMakesNobodyLate(t *testing.T) {
	u := newUsers(0)
	torch, driver := library.Inode{Dev: 1, Ino: 2}, library.Inode{Dev: 1, Ino: 3}
	u.add(10, use{inode: torch, torch: true, at: 40})
	u.add(11, use{inode: torch, torch: true, at: 40})
	u.add(11, use{inode: driver, at: 40})
	u.fork(12, 10, 50)
	for pid, late := range map[uint32]bool{10: false, 11: true, 12: false} {
		if u.late(pid, 1) != late {
			t.Errorf("process %d: late %v", pid, !late)
		}
	}
	u.older = map[uint32]bool{10: true, 11: true}
	running := map[uint32]*library.Process{10: {}, 11: {}}
	if got := u.olderUsers(running); !slices.Equal(got, []uint64{11}) {
		t.Errorf("older users are %v, want 11", got)
	}
}

// TestForkedChildIsAUser: a child has its parent's mappings; no record reports them.
func TestForkedChildIsAUser(t *testing.T) {
	u := newUsers(0)
	l := &attached{shown: library.Inode{Dev: 1, Ino: 2}, attachment: &attachment{}, since: 50}
	u.files[l.shown] = l
	u.add(10, use{inode: l.shown, at: 40})
	u.fork(11, 10, 45)
	u.fork(12, 10, 60)
	for pid, late := range map[uint32]bool{10: true, 11: true, 12: false, 13: false} {
		if u.late(pid, 1) != late {
			t.Errorf("process %d: late %v", pid, !late)
		}
	}
	u.keep(10, func(use) bool { return false })
	if !u.used()[l] {
		t.Error("the children do not count as users")
	}
	u.exec(11, 70)
	u.exec(12, 70)
	if u.used()[l] {
		t.Error("the library has a user after every process did an exec")
	}
}
