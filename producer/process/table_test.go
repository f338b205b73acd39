package process

import (
	"os"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// noLibraries answers for a host without attached libraries.
type noLibraries struct{}

func (noLibraries) IsLate(uint32, schema.KTime) bool { return false }
func (noLibraries) Ended(uint32)                     {}
func (noLibraries) Unseen(uint32) func(string, uint64) string {
	return func(string, uint64) string { return "" }
}

// TestLaunchesKeepTheirImageAfterExec: launches of the old image are read after the first call of the new one, and
// belong to the old image.
func TestLaunchesKeepTheirImageAfterExec(t *testing.T) {
	p := NewTable(noLibraries{})
	pid := uint32(os.Getpid())
	record := func(at uint64, call schema.CallID, comm string) *bpf.ThreadRecord {
		r := &bpf.ThreadRecord{Head: bpf.Head{Call: uint16(call), TID: pid, TGID: pid, ThreadStart: 7, Time: at},
			ProcessStart: 7}
		copy(r.Comm[:], comm)
		copy(r.ProcessComm[:], comm)
		return r
	}
	at := func(time uint64) *Thread { return p.Thread(&bpf.Head{TID: pid, TGID: pid, ThreadStart: 7, Time: time}) }
	p.LearnThread(record(10, 0, "first"))
	first := at(11).Process
	first.late = true
	p.BeginRound(20)
	p.LearnEnd(record(20, schema.CallExec, "second"))
	p.LearnThread(record(30, 0, "second"))
	second := at(31).Process
	if first == second {
		t.Fatal("one image")
	}
	if second.late || second.Late {
		t.Error("the new image is late, as the one before")
	}
	for time, want := range map[uint64]*Process{15: first, 31: second, 29: first, 40: second} {
		for range 2 { // the second time from the cache
			if got := at(time); got.Process != want {
				t.Errorf("at %d a call is of %s", time, got.Comm)
			}
		}
	}
	now := schema.KTime(20_000_000_000)
	p.Expire(now)
	if kept := at(41); kept.before != nil || kept.Process != second {
		t.Errorf("the image before is kept: %+v", kept)
	}
}

// TestEndDuringDetachIsLate: a process that ends while probes are being removed counts as late.
func TestEndDuringDetachIsLate(t *testing.T) {
	for _, c := range []struct {
		name           string
		leaving, ended uint64
		call           schema.CallID
		late, reused   bool
	}{
		{"before detaching", 0, 20, schema.CallExit, false, true},
		{"just before detaching", 21, 20, schema.CallExit, false, true},
		{"at the start of detaching", 20, 20, schema.CallExit, true, false},
		{"while detaching", 15, 20, schema.CallExit, true, false},
		{"an exec while detaching", 15, 20, schema.CallExec, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewTable(noLibraries{})
			pid := uint32(os.Getpid())
			record := func(at uint64, call schema.CallID) *bpf.ThreadRecord {
				return &bpf.ThreadRecord{Head: bpf.Head{Call: uint16(call), TID: pid, TGID: pid, ThreadStart: 7,
					Time: at}, ProcessStart: 7}
			}
			p.LearnThread(record(10, 0))
			q := p.byPID[pid]
			q.Index[schema.KindMemory].Generation = 1 // the open batch has it
			p.leaving = schema.KTime(c.leaving)
			p.BeginRound(schema.KTime(c.ended))
			if leader := p.LearnEnd(record(c.ended, c.call)); leader.Process != q || q.Late != c.late {
				t.Errorf("late %t, want %t", q.Late, c.late)
			}
			if reused := q.Index[schema.KindMemory].Generation == 1; reused != c.reused {
				t.Errorf("the row in the open batch is used again: %t, want %t", reused, c.reused)
			}
		})
	}
}
