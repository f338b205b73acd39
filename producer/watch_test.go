//go:build bpf

package producer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

// watching is a producer that never scans again: what it learns comes from side-band records.
type watching struct {
	*Producer
	js   jetstream.JetStream
	stop context.CancelFunc
	done chan error
}

func watch(t testing.TB) *watching {
	w := prepare(t)
	w.run(t)
	return w
}

// prepare attaches the host's libraries, the stub if none are named, and does not read yet.
func prepare(t testing.TB, libraries ...string) *watching {
	if libraries == nil {
		libraries = []string{stub(t, "stub/libcuda.so.1")}
	}
	return prepareOn(t, libraries, "memory")
}

// prepareFor attaches the stub for some features.
func prepareFor(t testing.TB, features ...string) *watching {
	return prepareOn(t, []string{stub(t, "stub/libcuda.so.1")}, features...)
}

func prepareOn(t testing.TB, libraries []string, features ...string) *watching {
	requireBPF(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.Libraries = "test", features, libraries
	cfg.ScanInterval = time.Hour
	w := &watching{js: newBus(t), done: make(chan error, 1)}
	var err error
	if w.Producer, err = New(cfg, "test", w.js, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if w.probes.side == nil {
		t.Fatal("no perf side-band")
	}
	return w
}

func (w *watching) run(t testing.TB) {
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	go func() { w.done <- w.Run(ctx) }()
}

// step reads the side-band and the rings once.
func (w *watching) step(t testing.TB) {
	w.probes.side.catchUp()
	w.Producer.step()
}

// told is what was published of one process.
type told struct {
	schema.Process
	allocs, frees, exits int
	onGPU                bool // the device was known: the first calls were seen
}

func (w *watching) end(t testing.TB) map[uint32]*told {
	w.stop()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	return toldBy(t, stored(t, w.js))
}

func toldBy(t testing.TB, messages [][]byte) map[uint32]*told {
	all := map[uint32]*told{}
	decoder := schema.NewDecoder()
	var b schema.Batch
	for _, data := range messages {
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		if b.Kind != schema.KindMemory {
			continue
		}
		for i := range b.Events {
			e := b.Memory(i)
			q := b.Processes[b.Threads[e.Thread].Process]
			if all[q.PID] == nil {
				all[q.PID] = &told{onGPU: true}
			}
			p := all[q.PID]
			p.Process = q
			switch b.Calls[e.Call].Op {
			case schema.OpAlloc:
				p.allocs++
				p.onGPU = p.onGPU && e.GPU != 0
			case schema.OpFree:
				p.frees++
			case schema.OpExit:
				p.exits++
			}
		}
	}
	return all
}

// workloadCopy is a folder with a workload and a driver library of its own.
func workloadCopy(t testing.TB, dir string) string {
	for _, file := range []string{"workload", "stub/libcuda.so.1"} {
		copyFile(t, stub(t, file), filepath.Join(dir, filepath.Base(file)))
	}
	return filepath.Join(dir, "workload")
}

func copyFile(t testing.TB, from, to string) {
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// stepped is a program that waits at its steps.
type stepped struct {
	*exec.Cmd
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
}

func startSteps(t testing.TB, cmd *exec.Cmd) *stepped {
	s := &stepped{Cmd: cmd, t: t}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s
}

// await waits for the next step.
func (s *stepped) await(name string) {
	line, err := s.out.ReadString('\n')
	if err != nil || line != "step "+name+"\n" {
		s.t.Fatalf("said %q (%v), not step %s", line, err, name)
	}
}

func (s *stepped) goOn() { fmt.Fprintln(s.in) }

func (s *stepped) finish() uint32 {
	s.in.Close()
	if err := s.Wait(); err != nil {
		s.t.Error(err)
	}
	return uint32(s.Process.Pid)
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// of is the library that a process has mapped, nil while it has no probes.
func (w *watching) of(pid int) *library {
	w.probes.mu.Lock()
	defer w.probes.mu.Unlock()
	for _, u := range w.probes.users.byPID[uint32(pid)] {
		if l := w.probes.users.files[u.inode]; l != nil && l.attached != 0 {
			return l
		}
	}
	return nil
}

func (w *watching) attached(t testing.TB, s *stepped) *library {
	t.Helper()
	eventually(t, "the library is attached", func() bool { return w.of(s.Process.Pid) != nil })
	return w.of(s.Process.Pid)
}

// under counts the attached libraries of a folder: other programs of this machine may have theirs.
func (w *watching) under(dir string) int {
	n := 0
	for _, l := range w.probes.list() {
		if strings.HasPrefix(l.Path, dir) {
			n++
		}
	}
	return n
}

func checkTold(t *testing.T, p *told, late bool) {
	t.Helper()
	if p == nil {
		t.Fatal("nothing was told of the process")
	}
	if p.Late != late || p.allocs != 1 || p.frees != 1 || p.exits != 1 || !p.onGPU {
		t.Errorf("told %+v, want late %v, 1 allocation, 1 free, 1 exit, on a known GPU", *p, late)
	}
}

// TestHundredOfHundred: programs of the host's library that call at once are complete.
func TestHundredOfHundred(t *testing.T) {
	w := watch(t)
	var pids []uint32
	for range 100 {
		cmd := exec.Command(stub(t, "workload"), "later")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, uint32(cmd.Process.Pid))
	}
	all := w.end(t)
	for _, pid := range pids {
		checkTold(t, all[pid], false)
	}
}

// TestCopyIsAttachedByItsMapping: a program that calls later loses nothing, and is late all the same:
// nobody knows that it did not call.
func TestCopyIsAttachedByItsMapping(t *testing.T) {
	w := watch(t)
	program := workloadCopy(t, t.TempDir())
	first := startSteps(t, exec.Command(program, "later", "--steps"))
	first.await("mapped")
	w.attached(t, first)
	second := startSteps(t, exec.Command(program, "later", "--steps"))
	first.goOn()
	pids := [2]uint32{first.finish(), second.finish()}
	all := w.end(t)
	checkTold(t, all[pids[0]], true)
	checkTold(t, all[pids[1]], false)
}

// TestAttachTime prints how soon copies are attached after they were mapped.
func TestAttachTime(t *testing.T) {
	w := watch(t)
	var took []time.Duration
	for range 100 {
		program := workloadCopy(t, t.TempDir())
		s := startSteps(t, exec.Command(program, "later", "--steps"))
		s.await("mapped")
		l := w.attached(t, s)
		w.probes.mu.Lock()
		took = append(took, time.Duration(l.attached-w.probes.users.byPID[uint32(s.Process.Pid)][0].at))
		w.probes.mu.Unlock()
		s.finish()
	}
	w.end(t)
	slices.Sort(took)
	if len(took) != 100 {
		t.Fatalf("%d copies were timed", len(took))
	}
	t.Logf("mapping to last probe: p50 %v, p99 %v, max %v", took[50], took[98], took[99])
}

// TestOlderProcessIsLateUntilExec: the new image has made no call before.
func TestOlderProcessIsLateUntilExec(t *testing.T) {
	requireBPF(t)
	shell := startSteps(t, exec.Command("/bin/sh", "-c", `echo step ready; read x; exec "$0" later --steps`, stub(t, "workload")))
	shell.await("ready")
	w := watch(t)
	shell.goOn()
	shell.await("mapped")
	pid := shell.finish()
	checkTold(t, w.end(t)[pid], false)
}

func TestDeletedLibrary(t *testing.T) {
	requireBPF(t)
	program := workloadCopy(t, t.TempDir())
	s := startSteps(t, exec.Command(program, "later", "--steps"))
	s.await("mapped")
	if err := os.Remove(filepath.Join(filepath.Dir(program), "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	w := watch(t)
	w.attached(t, s)
	pid := s.finish()
	checkTold(t, w.end(t)[pid], true)
}

func TestChroot(t *testing.T) {
	w := watch(t)
	root := t.TempDir()
	workloadCopy(t, root)
	out, err := exec.Command("ldd", stub(t, "workload")).Output() // it maps them
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(field, "/") && !strings.Contains(field, "libcuda.so") {
			copyFile(t, field, filepath.Join(root, field))
		}
	}
	cmd := exec.Command("/workload", "later", "--steps")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir, cmd.Env = "/", []string{"LD_LIBRARY_PATH=/"}
	s := startSteps(t, cmd)
	s.await("mapped")
	w.attached(t, s)
	pid := s.finish()
	checkTold(t, w.end(t)[pid], true)
}

// inNamespace runs a program in a mount namespace of its own, behind mounts that a shell makes.
func inNamespace(mounts, program string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-ec", mounts+`; exec "$0" later --steps`, program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

func TestBindMount(t *testing.T) {
	w := watch(t)
	dir, at := t.TempDir(), t.TempDir()
	workloadCopy(t, dir)
	s := startSteps(t, inNamespace(fmt.Sprintf("mount --bind %s %s", dir, at), at+"/workload"))
	s.await("mapped")
	w.attached(t, s)
	pid := s.finish()
	checkTold(t, w.end(t)[pid], true)
}

// TestOverlay: two containers over one layer, and the layer itself, have one library.
func TestOverlay(t *testing.T) {
	w := watch(t)
	lower := t.TempDir()
	workloadCopy(t, lower)
	container := func() *stepped {
		top, tmpfs := t.TempDir(), t.TempDir()
		mounts := fmt.Sprintf("mount -t tmpfs none %[3]s; mkdir %[3]s/upper %[3]s/work; "+
			"mount -t overlay overlay -o lowerdir=%[1]s,upperdir=%[3]s/upper,workdir=%[3]s/work %[2]s", lower, top, tmpfs)
		s := startSteps(t, inNamespace(mounts, top+"/workload"))
		s.await("mapped")
		return s
	}
	first := container()
	one := w.attached(t, first)
	others := []*stepped{container(), container(), startSteps(t, exec.Command(lower+"/workload", "later", "--steps"))}
	others[2].await("mapped")
	for _, s := range others {
		if w.attached(t, s) != one {
			t.Error("the file is attached twice")
		}
	}
	pid := first.finish()
	var pids []uint32
	for _, s := range others {
		pids = append(pids, s.finish())
	}
	all := w.end(t)
	checkTold(t, all[pid], true)
	for _, pid := range pids {
		checkTold(t, all[pid], false)
	}
}

func TestComm(t *testing.T) {
	w := prepare(t)
	s := startSteps(t, exec.Command(stub(t, "workload"), "renamed", "--steps"))
	s.await("before")
	w.step(t)
	s.goOn()
	s.await("named")
	w.step(t)
	s.finish()
	w.run(t)
	w.end(t)
	type names struct{ process, thread string }
	got := map[uint64]names{}
	each(t, stored(t, w.js), schema.KindMemory, func(b *schema.Batch) {
		for i := range b.Events {
			if e := b.Memory(i); b.Calls[e.Call].Op == schema.OpAlloc {
				thread := b.Threads[e.Thread]
				got[e.Bytes>>20] = names{b.Processes[thread.Process].Comm, thread.Comm}
			}
		}
	})
	want := map[uint64]names{
		1: {"workload", "workload"}, 3: {"workload", "before-t"}, 2: {"after-p", "after-p"}, 4: {"after-p", "after-t"},
	}
	for mib, n := range want {
		if got[mib] != n {
			t.Errorf("block of %d MiB: %v, want %v", mib, got[mib], n)
		}
	}
}

// TestNothingIsLeft of a thousand short programs with twenty libraries of their own.
func TestNothingIsLeft(t *testing.T) {
	w := prepare(t)
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { w.probes.run(ctx, time.Hour) })
	group.Go(func() {
		for ctx.Err() == nil {
			w.Producer.step()
		}
	})
	dir := t.TempDir()
	pids := map[uint32]bool{}
	for i := range 20 {
		program := workloadCopy(t, filepath.Join(dir, fmt.Sprint(i)))
		for range 50 {
			cmd := exec.Command(program, "later")
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
			pids[uint32(cmd.Process.Pid)] = true
		}
	}
	if n := w.under(dir); n < 15 {
		t.Errorf("only %d libraries were ever attached: little is shown", n)
	}
	eventually(t, "the process table is empty", func() bool { return w.metrics.processes.Load() == 0 })
	stop()
	group.Wait()

	p := w.probes
	p.side.catchUp()
	now := bootTime() + leaveGrace
	p.step(now)
	p.step(now + unusedGrace)
	p.closing.Wait()
	if n := w.under(dir); n != 0 {
		t.Errorf("%d libraries are attached", n)
	}
	eventually(t, "goroutines and files, links among them, are as before", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
	})
	for pid := range pids {
		if p.users.byPID[pid] != nil || p.users.leaving[pid] != 0 || w.known.byPID[pid] != nil {
			t.Errorf("process %d is still known", pid)
		}
	}
	if files, libraries := len(p.users.files), len(p.libraries); files > libraries || libraries > 5 {
		t.Errorf("%d files and %d libraries are left", files, libraries)
	}
	for name, n := range entriesLeft(t) {
		if n != 0 {
			t.Errorf("the map %s has %d entries", name, n)
		}
	}
	w.run(t)
	w.end(t)
}

// entriesLeft counts the entries of this process's hash maps.
func entriesLeft(t testing.TB) map[string]int {
	left := map[string]int{}
	list, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		info, _ := os.ReadFile(path)
		_, line, ok := strings.Cut(string(info), "map_id:\t")
		var id int
		if _, err := fmt.Sscan(line, &id); !ok || err != nil {
			continue
		}
		m, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if err != nil {
			t.Fatal(err)
		}
		if m.Type() == ebpf.Hash {
			var key, value []byte
			for it := m.Iterate(); it.Next(&key, &value); {
				left[m.String()]++
			}
			left[m.String()] += 0
		}
		m.Close()
	}
	if len(left) == 0 {
		t.Error("no hash map was found")
	}
	return left
}

func openFiles(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestUpgradedDriver: the host's path has a new file, which is attached before anybody maps it; the old
// one goes when it is no longer used.
func TestUpgradedDriver(t *testing.T) {
	requireBPF(t)
	program := workloadCopy(t, t.TempDir())
	path := filepath.Join(filepath.Dir(program), "libcuda.so.1")
	w := prepare(t, path)
	old := startSteps(t, exec.Command(program, "later", "--steps"))
	old.await("mapped")
	copyFile(t, stub(t, "stub/libcuda.so.1"), path+".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	now := bootTime()
	w.probes.side.catchUp()
	for range 2 {
		w.probes.step(now)
		now += unusedGrace
	}
	w.probes.closing.Wait()
	if n := w.under(filepath.Dir(path)); n != 2 {
		t.Errorf("%d libraries are attached, want the new one and the one in use", n)
	}
	fresh := startSteps(t, exec.Command(program, "later", "--steps"))
	fresh.await("mapped")
	pids := [2]uint32{old.finish(), fresh.finish()}
	w.probes.side.catchUp()
	now = bootTime() + leaveGrace
	for range 2 {
		w.probes.step(now)
		now += unusedGrace
	}
	w.probes.closing.Wait()
	if n := w.under(filepath.Dir(path)); n != 1 {
		t.Errorf("%d libraries are attached, want the new one", n)
	}
	w.run(t)
	all := w.end(t)
	checkTold(t, all[pids[0]], false)
	checkTold(t, all[pids[1]], false)
}

// TestForkedChildIsAUser: a child has its parent's mappings, of which no record tells.
func TestForkedChildIsAUser(t *testing.T) {
	u := newUsers(0)
	l := &library{shown: inode{1, 2}, attachment: &attachment{}, attached: 50}
	u.files[l.shown] = l
	u.maps(10, use{inode: l.shown, at: 40})
	u.fork(11, 10, 45)
	u.fork(12, 10, 60)
	for pid, late := range map[uint32]bool{10: true, 11: true, 12: false, 13: false} {
		if u.late(pid, 1) != late {
			t.Errorf("process %d: late %v", pid, !late)
		}
	}
	u.keep(10, func(use) bool { return false })
	if !u.used()[l] {
		t.Error("the children do not count")
	}
	u.exec(11, 70)
	u.exec(12, 70)
	if u.used()[l] {
		t.Error("somebody has it mapped after all were replaced")
	}
}

// TestScansAlone: where Linux refuses the side-band, a scan finds what was mapped since the last one.
func TestScansAlone(t *testing.T) {
	w := prepare(t)
	w.probes.side.close()
	w.probes.side = nil
	program := workloadCopy(t, t.TempDir())
	first := startSteps(t, exec.Command(program, "later", "--steps"))
	first.await("mapped")
	w.probes.step(bootTime())
	w.attached(t, first)
	w.probes.step(bootTime())
	second := startSteps(t, exec.Command(program, "later", "--steps"))
	second.await("mapped")
	w.probes.step(bootTime())
	pids := [2]uint32{first.finish(), second.finish()}
	w.Producer.step() // before they are forgotten
	now := bootTime() + leaveGrace
	w.probes.step(now) // sees that they are gone
	for range 3 {
		now += unusedGrace
		w.probes.step(now)
	}
	w.probes.closing.Wait()
	if n := w.under(filepath.Dir(program)); n != 0 {
		t.Errorf("%d libraries are attached that nobody uses", n)
	}
	w.run(t)
	all := w.end(t)
	checkTold(t, all[pids[0]], true)
	checkTold(t, all[pids[1]], false)
}
