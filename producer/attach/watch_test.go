//go:build bpf

package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestCopyIsAttachedByItsMapping: a program with a library of its own that calls later loses nothing. It counts as late
// all the same, since gputap cannot know whether it called before.
func TestCopyIsAttachedByItsMapping(t *testing.T) {
	h := newHost(t).run(t)
	program := producertest.CopyWorkload(t, t.TempDir())
	first := startLater(t, program)
	first.Await("mapped")
	h.awaitAttached(t, first)
	second := startLater(t, program)
	first.Continue()
	pids := [2]uint32{first.Finish(), second.Finish()}
	all := h.end(t)
	check(t, all[pids[0]], true)
	check(t, all[pids[1]], false)
}

// TestAttachTime prints the time from a mapping to the attach of its library.
func TestAttachTime(t *testing.T) {
	h := newHost(t).run(t)
	var took []time.Duration
	for range 50 {
		program := producertest.CopyWorkload(t, t.TempDir())
		s := startLater(t, program)
		s.Await("mapped")
		l := h.awaitAttached(t, s)
		h.mu.Lock()
		took = append(took, time.Duration(l.since-h.users.byPID[uint32(s.Process.Pid)][0].at))
		h.mu.Unlock()
		s.Finish()
	}
	h.end(t)
	slices.Sort(took)
	if len(took) != 50 {
		t.Fatalf("%d copies were timed", len(took))
	}
	t.Logf("mapping to last probe: p50 %v, p99 %v, max %v", took[25], took[48], took[49])
}

func TestDeletedLibrary(t *testing.T) {
	producertest.RequireBPF(t)
	program := producertest.CopyWorkload(t, t.TempDir())
	s := startLater(t, program)
	s.Await("mapped")
	if err := os.Remove(filepath.Join(filepath.Dir(program), "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	h := newHost(t).run(t)
	h.awaitAttached(t, s)
	pid := s.Finish()
	check(t, h.end(t)[pid], true)
}

func TestChroot(t *testing.T) {
	h := newHost(t).run(t)
	root := t.TempDir()
	producertest.CopyWorkload(t, root)
	out, err := exec.Command("ldd", producertest.Built(t, "workload")).Output() // the files that it maps
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(field, "/") && !strings.Contains(field, "libcuda.so") {
			producertest.CopyFile(t, field, filepath.Join(root, field))
		}
	}
	cmd := exec.Command("/workload", "later", "--steps")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir, cmd.Env = "/", []string{"LD_LIBRARY_PATH=/"}
	s := producertest.StartSteps(t, cmd)
	s.Await("mapped")
	h.awaitAttached(t, s)
	pid := s.Finish()
	check(t, h.end(t)[pid], true)
}

// inNamespace runs a program in a mount namespace of its own, after a shell made its mounts.
func inNamespace(mounts, program string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-ec", mounts+`; exec "$0" later --steps`, program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

func TestBindMount(t *testing.T) {
	h := newHost(t).run(t)
	dir, at := t.TempDir(), t.TempDir()
	producertest.CopyWorkload(t, dir)
	s := producertest.StartSteps(t, inNamespace(fmt.Sprintf("mount --bind %s %s", dir, at), at+"/workload"))
	s.Await("mapped")
	h.awaitAttached(t, s)
	pid := s.Finish()
	check(t, h.end(t)[pid], true)
}

// TestOverlay: two containers over one layer, and the layer itself, have one library.
func TestOverlay(t *testing.T) {
	h := newHost(t).run(t)
	lower := t.TempDir()
	producertest.CopyWorkload(t, lower)
	container := func() *producertest.Steps {
		top, tmpfs := t.TempDir(), t.TempDir()
		mounts := fmt.Sprintf("mount -t tmpfs none %[3]s; mkdir %[3]s/upper %[3]s/work; "+
			"mount -t overlay overlay -o lowerdir=%[1]s,upperdir=%[3]s/upper,workdir=%[3]s/work %[2]s",
			lower, top, tmpfs)
		s := producertest.StartSteps(t, inNamespace(mounts, top+"/workload"))
		s.Await("mapped")
		return s
	}
	first := container()
	one := h.awaitAttached(t, first)
	others := []*producertest.Steps{container(), container(), startLater(t, lower+"/workload")}
	others[2].Await("mapped")
	for _, s := range others {
		if h.awaitAttached(t, s) != one {
			t.Error("the file is attached twice")
		}
	}
	pid := first.Finish()
	var pids []uint32
	for _, s := range others {
		pids = append(pids, s.Finish())
	}
	all := h.end(t)
	check(t, all[pid], true)
	for _, pid := range pids {
		check(t, all[pid], false)
	}
}

// TestNothingIsLeft of two hundred short programs with twenty libraries of their own.
func TestNothingIsLeft(t *testing.T) {
	h := newHost(t)
	goroutines, files := runtime.NumGoroutine(), producertest.OpenFiles(t)
	h.run(t)
	dir := t.TempDir()
	pids := map[uint32]bool{}
	for i := range 20 {
		program := producertest.CopyWorkload(t, filepath.Join(dir, fmt.Sprint(i)))
		for range 10 {
			cmd := exec.Command(program, "later")
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
			pids[uint32(cmd.Process.Pid)] = true
		}
	}
	if n := h.under(dir); n < 15 {
		t.Errorf("only %d libraries were ever attached: the test shows little", n)
	}
	h.stop()
	h.pass(2)
	if n := h.under(dir); n != 0 {
		t.Errorf("%d libraries are attached", n)
	}
	producertest.Eventually(t, "goroutines and files, links among them, are as before", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() <= goroutines && producertest.OpenFiles(t) <= files
	})
	for pid := range pids {
		if h.users.byPID[pid] != nil || h.users.leaving[pid] != 0 {
			t.Errorf("process %d is still known", pid)
		}
	}
	if files, libraries := len(h.users.files), len(h.libraries); files > libraries || libraries > 5 {
		t.Errorf("%d files and %d libraries are left", files, libraries)
	}
	for name, n := range producertest.MapEntries(t) {
		if n != 0 {
			t.Errorf("the map %s has %d entries", name, n)
		}
	}
	h.end(t)
}

// TestUpgradedDriver: a new file at the host's path is attached before anybody maps it; the old one is detached when it
// is no longer used.
func TestUpgradedDriver(t *testing.T) {
	producertest.RequireBPF(t)
	program := producertest.CopyWorkload(t, t.TempDir())
	path := filepath.Join(filepath.Dir(program), "libcuda.so.1")
	h := newHost(t, path)
	old := startLater(t, program)
	old.Await("mapped")
	producertest.CopyFile(t, producertest.Built(t, "stub/libcuda.so.1"), path+".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	now := bootTime()
	h.CatchUp()
	for range 2 {
		h.step(now)
		now += unusedGrace
	}
	h.closing.Wait()
	if n := h.under(filepath.Dir(path)); n != 2 {
		t.Errorf("%d libraries are attached, want the new one and the one in use", n)
	}
	fresh := startLater(t, program)
	fresh.Await("mapped")
	pids := [2]uint32{old.Finish(), fresh.Finish()}
	h.pass(2)
	if n := h.under(filepath.Dir(path)); n != 1 {
		t.Errorf("%d libraries are attached, want the new one", n)
	}
	all := h.end(t)
	check(t, all[pids[0]], false)
	check(t, all[pids[1]], false)
}

// TestScansAlone: where Linux refuses the side-band, a scan finds new mappings.
func TestScansAlone(t *testing.T) {
	h := newHost(t)
	h.side.close()
	h.side = nil
	program := producertest.CopyWorkload(t, t.TempDir())
	first := startLater(t, program)
	first.Await("mapped")
	h.step(bootTime())
	h.awaitAttached(t, first)
	h.step(bootTime())
	second := startLater(t, program)
	second.Await("mapped")
	h.step(bootTime())
	pids := [2]uint32{first.Finish(), second.Finish()}
	h.read() // before the probes remove the processes
	h.pass(4)
	if n := h.under(filepath.Dir(program)); n != 0 {
		t.Errorf("%d unused libraries are attached", n)
	}
	all := h.end(t)
	check(t, all[pids[0]], true)
	check(t, all[pids[1]], false)
}

// TestOlderProcessesAreReported: the list of older processes names those that had a driver mapped before gputap
// started, until they end.
func TestOlderProcessesAreReported(t *testing.T) {
	producertest.RequireBPF(t)
	workload := producertest.Built(t, "workload")
	start := func() *producertest.Steps {
		s := producertest.StartSteps(t, exec.Command(workload, "late-kernels", "--steps"))
		s.Await("attached")
		return s
	}
	stays, ends := start(), start()
	h := newHost(t)
	later := start()
	check := func(want map[*producertest.Steps]bool) {
		t.Helper()
		older := h.TakeChanges().Older
		for s, listed := range want {
			if slices.Contains(older, uint64(s.Process.Pid)) != listed {
				t.Errorf("older processes %v: is %d one of them: want %v", older, s.Process.Pid, listed)
			}
		}
	}
	check(map[*producertest.Steps]bool{stays: true, ends: true, later: false})
	for _, s := range []*producertest.Steps{ends, later} {
		_ = s.Process.Kill()
		_ = s.Wait()
	}
	h.pass(1)
	check(map[*producertest.Steps]bool{stays: true, ends: false, later: false})
	stays.Finish()
}

// TestTorchLibrary: PyTorch's library is attached when a program loads it, soon after its mapping, and detached when no
// program has it mapped any more. The program is not late.
func TestTorchLibrary(t *testing.T) {
	h := newHostFor(t, []string{producertest.Built(t, "stub/libcuda.so.1")}, schema.KindMemory, schema.KindTensor)
	h.run(t)
	program := producertest.Built(t, "workload")
	dir := filepath.Dir(producertest.Built(t, "stub/libc10.so"))
	attached := func() bool {
		return slices.ContainsFunc(h.Libraries(), func(l schema.Library) bool {
			return l.Path == filepath.Join(dir, "libc10.so")
		})
	}
	if attached() {
		t.Fatal("the library is attached before any program has loaded it")
	}
	s := producertest.StartSteps(t, exec.Command(program, "tensors", "--steps", "--threads", "1", "--count", "1"))
	s.Await("mapped")
	producertest.Eventually(t, "libc10.so is attached", attached)
	skipTo := func(step string) {
		for line := ""; line != "step "+step+"\n"; {
			var err error
			if line, err = s.Out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []string{"live", "freed", "unloaded"} {
		s.Continue()
		skipTo(step)
	}
	h.stop()
	h.pass(1)
	if !attached() {
		t.Error("the library was detached at once")
	}
	h.pass(scanEvery + 2) // no record reports that a file was unmapped: a scan finds it
	if attached() {
		t.Error("the library stays attached after dlclose")
	}
	pid := s.Finish()
	seen := h.end(t)[pid]
	if seen == nil || seen.late || seen.allocs == 0 {
		t.Errorf("seen %+v, want a process that is not late, with allocations", seen)
	}
}
