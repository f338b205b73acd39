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
