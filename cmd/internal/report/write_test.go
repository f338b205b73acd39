package report

import (
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/leak"
)

// Many programs load the driver and call nothing, such as the loader of a library. A report only counts them.
func TestReportOmitsProcessesWithoutCalls(t *testing.T) {
	t.Parallel()
	s := New(time.Now())
	s.Processes = []*Process{
		{PID: 7, Comm: "train", Calls: map[string]*Call{"cuMemAlloc_v2": {OK: 1}}, Ended: true},
		{PID: 8, Comm: "loader", Ended: true},
		{PID: 9, Comm: "starts"},
	}
	var out strings.Builder
	if err := s.Write(&out, nil); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for part, want := range map[string]bool{
		"PID 7 train": true, "PID 8": false, "PID 9 starts": true,
		"1 process ended without a call that gputap watches": true, "1 process running, 2 ended": true,
	} {
		if strings.Contains(text, part) != want {
			t.Errorf("%q is shown: %v\n%s", part, !want, text)
		}
	}
}

func TestReportNamesResultsAndSeverity(t *testing.T) {
	t.Parallel()
	p := &Process{Calls: map[string]*Call{
		"cuMemAlloc_v2": {OK: 1, Failed: 5, Errors: map[uint32]uint64{2: 4, 12345: 1}},
	}}
	s := &Snapshot{Processes: []*Process{p}, Alerts: []alert.Alert{
		{Rule: "oom", Severity: alert.Critical, Message: "train ran out of GPU memory"},
	}}
	var out strings.Builder
	if err := s.Write(&out, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"5 failed   CUDA_ERROR_OUT_OF_MEMORY × 4   CUresult 12345 × 1\n",
		"\nALERT critical oom: train ran out of GPU memory\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestRenamedThread: a thread that was renamed has a heading with its own sum under each name, as in JSON.
func TestRenamedThread(t *testing.T) {
	t.Parallel()
	p := &Process{PID: 7, LiveAllocations: 285, Threads: []Thread{
		{TID: 9, Comm: "wrk-1", LiveBytes: 284 << 20, LiveAllocations: 284},
		{TID: 9, Comm: "python3", LiveBytes: 64, LiveAllocations: 1},
	}}
	s := &Snapshot{Processes: []*Process{p}}
	top := []leak.TopRow{{Count: 284}, {Count: 1}}
	top[0].TID, top[0].ThreadComm, top[1].TID, top[1].ThreadComm = 9, "wrk-1", 9, "python3"
	var out strings.Builder
	if err := s.Write(&out, top); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  thread 9 wrk-1   live 284.00 MiB in 284\n    284 × ", "  thread 9 python3   live 64 B in 1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
