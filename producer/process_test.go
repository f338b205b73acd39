package producer

import (
	"os"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// TestExecInOrder: launches of the image before are read after the new one made its first call, and are told with the
// kernels of their own image.
func TestExecInOrder(t *testing.T) {
	p := newProcesses(neverLate{}, nil)
	pid := uint32(os.Getpid())
	record := func(at uint64, call schema.CallID, comm string) *bpf.ThreadRecord {
		r := &bpf.ThreadRecord{Head: bpf.Head{Call: uint16(call), TID: pid, TGID: pid, ThreadStart: 7, Time: at}, ProcessStart: 7}
		copy(r.Comm[:], comm)
		copy(r.ProcessComm[:], comm)
		return r
	}
	at := func(time uint64) *thread { return p.thread(&bpf.Head{TID: pid, TGID: pid, ThreadStart: 7, Time: time}) }
	p.announce(record(10, 0, "first"))
	first := at(11).process
	first.graphs.late = true
	p.end(record(20, schema.CallExec, "second"), 20)
	p.announce(record(30, 0, "second"))
	second := at(31).process
	if first == second {
		t.Fatal("one image")
	}
	if second.graphs.late || second.Late {
		t.Error("the new image is late, as the one before")
	}
	for time, want := range map[uint64]*process{15: first, 31: second, 29: first, 40: second} {
		for range 2 { // the second time it is remembered
			if got := at(time); got.process != want {
				t.Errorf("at %d a call is of %s", time, got.comm)
			}
		}
	}
	now := schema.KTime(20_000_000_000)
	p.forget(now)
	if kept := at(41); kept.before != nil || kept.process != second {
		t.Errorf("the image before is kept: %+v", kept)
	}
}

// TestEndWhileProbesGo: who ends when calls may go unseen is not told as one of which all was seen.
func TestEndWhileProbesGo(t *testing.T) {
	for _, c := range []struct {
		name             string
		leaving, ended   uint64
		call             schema.CallID
		late, toldBefore bool
	}{
		{"the probes are there", 0, 20, schema.CallExit, false, true},
		{"it ended before", 21, 20, schema.CallExit, false, true},
		{"it ended then", 20, 20, schema.CallExit, true, false},
		{"it ended later", 15, 20, schema.CallExit, true, false},
		{"its image ended later", 15, 20, schema.CallExec, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProcesses(neverLate{}, nil)
			pid := uint32(os.Getpid())
			record := func(at uint64, call schema.CallID) *bpf.ThreadRecord {
				return &bpf.ThreadRecord{Head: bpf.Head{Call: uint16(call), TID: pid, TGID: pid, ThreadStart: 7, Time: at}, ProcessStart: 7}
			}
			p.announce(record(10, 0))
			q := p.byPID[pid]
			q.interned[schema.KindMemory].generation = 1 // the open batch has told it
			p.leaving = schema.KTime(c.leaving)
			if leader := p.end(record(c.ended, c.call), schema.KTime(c.ended)); leader.process != q || q.Late != c.late {
				t.Errorf("late %t, want %t", q.Late, c.late)
			}
			if told := q.interned[schema.KindMemory].generation == 1; told != c.toldBefore {
				t.Errorf("the row in the open batch is used again: %t, want %t", told, c.toldBefore)
			}
		})
	}
}
