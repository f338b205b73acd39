//go:build bpf

package producer

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// block is one report of the stub's allocator, or one tensor event.
type block struct {
	tid                 uint32
	ptr                 uint64
	bytes               int64 // negative: taken back
	allocated, reserved uint64
	gpu                 string
}

// reportsBefore reads the reports that the workload prints before a step, by device.
func reportsBefore(t *testing.T, s *producertest.Steps, step string) (byDevice [2][]block) {
	t.Helper()
	for {
		line, err := s.Out.ReadString('\n')
		if err != nil {
			t.Fatalf("the workload ended before step %s: %v", step, err)
		}
		if line == "step "+step+"\n" {
			return byDevice
		}
		var device int
		var b block
		if _, err := fmt.Sscanf(line, "block %d %d %v %d %d %d", &device, &b.tid, &b.ptr, &b.bytes, &b.allocated,
			&b.reserved); err != nil {
			t.Fatalf("the workload printed %q: %v", line, err)
		}
		b.gpu = stubCards[device]
		byDevice[device] = append(byDevice[device], b)
	}
}

// tensors returns the tensor events of a process by device, in the order in which they were published.
func tensors(t *testing.T, messages [][]byte, pid int) (byDevice [2][]block, late bool) {
	t.Helper()
	each(t, messages, schema.KindTensor, func(b *schema.Batch) {
		if b.TotalLost() != 0 {
			t.Errorf("losses: %v", b.Lost)
		}
		for i := range b.Events {
			e := b.Tensor(i)
			thread, call := b.Threads[e.Thread], b.Calls[e.Call]
			if int(b.Processes[thread.Process].PID) != pid {
				continue
			}
			late = b.Processes[thread.Process].Late
			got := block{
				tid: thread.TID, ptr: e.Ptr, bytes: int64(e.Bytes), allocated: e.Allocated, reserved: e.Reserved,
			}
			if call.Op == schema.OpBlockFree {
				got.bytes = -got.bytes
			}
			if call.Symbol != reportSymbol || call.Op != schema.OpBlockAlloc && call.Op != schema.OpBlockFree {
				t.Fatalf("call %+v", call)
			}
			if e.GPU == 0 {
				t.Fatal("a block is on an unknown GPU")
			}
			gpu := b.GPUs[e.GPU-1]
			got.gpu = gpu.UUID
			byDevice[gpu.Ordinal] = append(byDevice[gpu.Ordinal], got)
		}
	})
	return byDevice, late
}

func sameBlocks(t *testing.T, got, want [2][]block) {
	t.Helper()
	for device := range want {
		if slices.Equal(got[device], want[device]) {
			continue
		}
		t.Errorf("device %d: %d events, want the %d of the log", device, len(got[device]), len(want[device]))
		for i := range min(len(got[device]), len(want[device])) {
			if got[device][i] != want[device][i] {
				t.Errorf("event %d is %+v, want %+v", i, got[device][i], want[device][i])
				break
			}
		}
	}
}

// awaitTorch waits until the library of a folder is attached, and returns it.
func awaitTorch(t *testing.T, w *watching, dir string) (found schema.Library) {
	t.Helper()
	producertest.Eventually(t, "libc10.so is attached", func() bool {
		for _, l := range w.probes.Libraries() {
			if l.Path == filepath.Join(dir, "libc10.so") {
				found = l
			}
		}
		return found.Path != ""
	})
	return found
}

func startTensors(t *testing.T, program, scenario string, args ...string) *producertest.Steps {
	t.Helper()
	return producertest.StartSteps(t, exec.Command(program, append([]string{scenario, "--steps"}, args...)...))
}

// TestTensorsEqualTheAllocatorsLog: each block of several threads on two devices is published, in the order of the
// allocator, and nothing else: no host memory and no size of 0. Loading PyTorch's library does not make a process late.
func TestTensorsEqualTheAllocatorsLog(t *testing.T) {
	w := prepareFor(t, "torch")
	w.run(t)
	program := producertest.Built(t, "workload")
	s := startTensors(t, program, "tensors", "--threads", "6", "--count", "3000")
	s.Await("mapped")
	stub := filepath.Join(filepath.Dir(program), "stub")
	if l := awaitTorch(t, w, stub); l.Attached != 1 || len(l.Absent)+len(l.Failed) != 0 || l.Stepped != 0 {
		t.Errorf("attached %+v", l)
	}
	s.Continue()
	want := reportsBefore(t, s, "live")
	s.Continue()
	for device, more := range reportsBefore(t, s, "freed") {
		want[device] = append(want[device], more...)
	}
	pid := s.Process.Pid
	s.Finish()
	w.end(t)
	messages := stored(t, w.js)
	got, late := tensors(t, messages, pid)
	if len(want[0])+len(want[1]) != 2*6*3000 {
		t.Fatalf("the log has %d + %d reports", len(want[0]), len(want[1]))
	}
	sameBlocks(t, got, want)
	if late {
		t.Error("the process is late")
	}
	if n := exits(t, messages, pid); n != 1 {
		t.Errorf("%d exits of the process were published, want 1", n)
	}
}

// exits counts the exit events of a process, which end its tensors.
func exits(t *testing.T, messages [][]byte, pid int) (n int) {
	if p := publishedOf(t, messages)[uint32(pid)]; p != nil {
		n = p.exits
	}
	return n
}

// TestTensorsOfALateAttach: the allocator's totals of the first event show blocks that were handed out before.
func TestTensorsOfALateAttach(t *testing.T) {
	producertest.RequireBPF(t)
	program := producertest.Built(t, "workload")
	s := startTensors(t, program, "tensors-late")
	before := reportsBefore(t, s, "allocated")
	w := prepareFor(t, "torch", "memory")
	w.run(t)
	awaitTorch(t, w, filepath.Join(filepath.Dir(program), "stub"))
	s.Continue()
	want := reportsBefore(t, s, "live")
	w.end(t)
	pid := s.Process.Pid
	s.Finish()
	got, late := tensors(t, stored(t, w.js), pid)
	for i := range got[0] { // the GPU is unknown to a late process unless it asks again
		got[0][i].gpu = stubCards[0]
	}
	if len(before[0]) != 3 || len(want[0]) != 2 {
		t.Fatalf("the log has %d reports, then %d", len(before[0]), len(want[0]))
	}
	sameBlocks(t, got, want)
	if first := want[0][0]; first.allocated == uint64(first.bytes) {
		t.Error("the first report shows no earlier blocks")
	}
	if !late {
		t.Error("the process is not late")
	}
}

// TestTensorsOfTwoLibraries: two files of the library are attached, each with the blocks of its process.
func TestTensorsOfTwoLibraries(t *testing.T) {
	w := prepareFor(t, "torch", "memory", "launch", "copy")
	w.run(t)
	var runs [2]*producertest.Steps
	for i := range runs {
		dir := t.TempDir()
		program := producertest.CopyWorkload(t, dir)
		producertest.CopyFile(t, producertest.Built(t, "stub/libc10.so"), filepath.Join(dir, "libc10.so"))
		runs[i] = startTensors(t, program, "tensors", "--threads", "2", "--count", "200")
		runs[i].Await("mapped")
		awaitTorch(t, w, dir)
		runs[i].Continue()
	}
	var want [2][2][]block
	for i, s := range runs {
		want[i] = reportsBefore(t, s, "live")
	}
	for i, s := range runs {
		s.Continue()
		for device, more := range reportsBefore(t, s, "freed") {
			want[i][device] = append(want[i][device], more...)
		}
		s.Finish()
	}
	w.end(t)
	messages := stored(t, w.js)
	for i, s := range runs {
		got, _ := tensors(t, messages, s.Process.Pid)
		for _, list := range [][]block{got[0], got[1], want[i][0], want[i][1]} {
			for k := range list { // the driver library was attached after the program had asked for its devices
				list[k].gpu = ""
			}
		}
		sameBlocks(t, got, want[i])
	}
}

// TestLibraryWithoutTheReport: heartbeats name the function as absent; all else is seen.
func TestLibraryWithoutTheReport(t *testing.T) {
	w := prepareFor(t, "torch", "memory")
	w.run(t)
	dir := t.TempDir()
	program := producertest.CopyWorkload(t, dir)
	producertest.CopyFile(t, producertest.Built(t, "stub/changed/libc10.so"), filepath.Join(dir, "libc10.so"))
	s := startTensors(t, program, "tensors", "--count", "100")
	s.Await("mapped")
	if l := awaitTorch(t, w, dir); l.Attached != 0 || !slices.Equal(l.Absent, []string{reportSymbol}) {
		t.Errorf("attached %+v", l)
	}
	s.Continue()
	reportsBefore(t, s, "live")
	all := w.end(t)
	s.Finish()
	pid := s.Process.Pid
	if got, _ := tensors(t, stored(t, w.js), pid); len(got[0])+len(got[1]) != 0 {
		t.Errorf("%d + %d tensor events", len(got[0]), len(got[1]))
	}
	if p := all[uint32(pid)]; p == nil || p.allocs == 0 {
		t.Errorf("published %+v, want the allocations of segments", p)
	}
	named := false
	each(t, stored(t, w.js), schema.KindHost, func(b *schema.Batch) {
		for _, l := range b.Libraries {
			named = named || strings.HasPrefix(l.Path, dir) && slices.Contains(l.Absent, reportSymbol)
		}
	})
	if !named {
		t.Error("no heartbeat names the function as absent")
	}
}

// TestTensorsAreOptIn: without the feature the library is not attached.
func TestTensorsAreOptIn(t *testing.T) {
	w := prepareFor(t, "memory")
	w.run(t)
	s := startTensors(t, producertest.Built(t, "workload"), "tensors", "--count", "10")
	s.Await("mapped")
	s.Continue()
	reportsBefore(t, s, "live")
	s.Finish()
	for _, l := range w.probes.Libraries() {
		if strings.HasSuffix(l.Path, "libc10.so") {
			t.Errorf("%s is attached", l.Path)
		}
	}
	w.end(t)
	if got, _ := tensors(t, stored(t, w.js), s.Process.Pid); len(got[0])+len(got[1]) != 0 {
		t.Errorf("%d + %d tensor events", len(got[0]), len(got[1]))
	}
}
