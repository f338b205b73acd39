package process

import (
	"os"
	"testing"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// TestTrimDiscardsTheLargestProcess: a process with few handles keeps them.
func TestTrimDiscardsTheLargestProcess(t *testing.T) {
	table := NewTable(noLibraries{})
	modest := bpf.NameRecord{Head: bpf.Head{Call: callID(t, "cuModuleGetFunction"), TID: 1 << 30, TGID: 1 << 30,
		ThreadStart: 1, Time: 1}, Handle: 1, NameBytes: 5, Name: [bpf.NameBytes]byte{'n', 'a', 'm', 'e'}}
	modest.TID, modest.TGID = 1<<30+1, 1<<30+1
	table.LearnName(&modest)
	greedy := modest
	greedy.Head = bpf.Head{Call: callID(t, "cuModuleGetFunction"), TID: 1 << 30, TGID: 1 << 30, ThreadStart: 1, Time: 1}
	for i := range uint64(2000) {
		greedy.Handle = i
		table.LearnName(&greedy)
	}
	if n := table.Trim(1 << 18); n != 1 {
		t.Errorf("%d processes lost their handles, want 1", n)
	}
	if q := table.byPID[modest.TGID]; table.Function(q, 1, 2).Name != "name" {
		t.Error("the modest process's name is gone")
	}
	if n := len(table.byPID[greedy.TGID].funcs); n != 0 {
		t.Errorf("the greedy process has %d functions", n)
	}
	if n := table.Trim(1 << 18); n != 0 {
		t.Errorf("%d processes lost their handles once more", n)
	}
}

// TestEndedThreadsExpire while their process runs; threads that sleep stay.
func TestEndedThreadsExpire(t *testing.T) {
	table := NewTable(noLibraries{})
	me := uint32(os.Getpid())
	table.identity.listed = true
	announce := func(tid uint32) {
		table.LearnThread(&bpf.ThreadRecord{
			Head: bpf.Head{Type: bpf.RecordThread, TGID: me, TID: tid, ThreadStart: uint64(tid)}, ProcessStart: 1,
		})
	}
	announce(me)
	for tid := range uint32(3 * enoughThreads) {
		announce(1<<30 + tid)
	}
	for range 10 {
		table.expireThreads()
	}
	if n := len(table.threads); n > enoughThreads {
		t.Errorf("%d threads are in the table", n)
	}
	if table.threads[threadKey{me, uint64(me)}] == nil {
		t.Error("the running thread expired")
	}
}

// TestVanishedProcessEndsOnce: a process whose exit record was lost is found, once.
func TestVanishedProcessEndsOnce(t *testing.T) {
	table := NewTable(noLibraries{})
	table.identity.listed = true
	table.BeginRound(schema.KTime(time.Hour))
	gone := bpf.ThreadRecord{Head: bpf.Head{Type: bpf.RecordThread, TGID: 1 << 30, TID: 1 << 30, ThreadStart: 5},
		ProcessStart: 5}
	here := gone
	here.TGID, here.TID = uint32(os.Getpid()), uint32(os.Getpid())
	here.ProcessStart = procfs.StartTicks(procfs.ReadFile("/proc/self/stat")) * uint64(procfs.Tick)
	table.LearnThread(&gone)
	table.LearnThread(&here)
	unannounced := bpf.MemoryRecord{Head: bpf.Head{Call: callID(t, "cuMemAlloc_v2")}, Ptr: 1}
	unannounced.TGID, unannounced.TID = 1<<30+1, 1<<30+1
	check := func(lost uint64) (n int) {
		for _, end := range table.Vanished(lost) {
			table.LearnEnd(&end)
			n++
		}
		return n
	}
	if n := check(0) + check(0) + check(0); n != 0 {
		t.Errorf("%d ends without a loss", n)
	}
	table.LearnMemory(&unannounced)
	if got := [4]int{check(1), check(1), check(1), check(1)}; got != [4]int{0, 2, 0, 0} {
		t.Errorf("ends at each check: %v", got)
	}
	table.Expire(table.now + 100*schema.KTime(time.Second))
	if n := len(table.byPID); n != 1 || len(table.threads) != 1 {
		t.Errorf("%d processes and %d threads are in the table, want this one", n, len(table.threads))
	}
}
