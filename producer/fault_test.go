//go:build bpf

package producer

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestKilledInsideCalls: processes are killed between the entry of a call and its return. Each exit is published,
// nothing of them is left, nothing counts as lost, and the next program is complete.
func TestKilledInsideCalls(t *testing.T) { killInsideCalls(t, 1000) }

func killInsideCalls(t *testing.T, victims int) {
	w := watch(t)
	first := exec.Command(producertest.Built(t, "workload"), "later")
	if err := first.Run(); err != nil {
		t.Fatal(err)
	}
	producertest.Eventually(t, "a memory batch is acked", func() bool {
		return w.metrics.batches[schema.KindMemory].Load() > 0
	})
	files, goroutines := producertest.OpenFiles(t), runtime.NumGoroutine()
	if out, err := exec.Command(producertest.Built(t, "workload"), "killed", "--count",
		strconv.Itoa(victims)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	producertest.Eventually(t, "every exit is published", func() bool {
		return w.metrics.events[schema.OpExit].Load() > uint64(victims)
	})
	for name, n := range producertest.MapEntries(t) {
		if n != 0 {
			t.Errorf("the map %s has %d entries", name, n)
		}
	}
	if n := variable(t, "captures_open"); n != 0 {
		t.Errorf("%d captures are open", n)
	}
	const passing = 3 // a publish under way, a file of the bus
	producertest.Eventually(t, "goroutines and files are as before", func() bool {
		return runtime.NumGoroutine() <= goroutines+passing && producertest.OpenFiles(t) <= files+passing
	})
	cmd := exec.Command(producertest.Built(t, "workload"), "later")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	all := w.end(t)
	exits, allocs := 0, 0
	for pid, p := range all {
		if pid != uint32(cmd.Process.Pid) && pid != uint32(first.Process.Pid) {
			exits += p.exits
			allocs += p.allocs
		}
	}
	if exits != victims || allocs != 0 {
		t.Errorf("%d exits and %d allocations, want %d and 0", exits, allocs, victims)
	}
	checkPublished(t, all[uint32(cmd.Process.Pid)], false)
	each(t, stored(t, w.js), schema.KindHost, func(*schema.Batch) {}) // fails on a loss
}

// TestLastThreadsAtOnce: two last threads of a process may both see that no other is left. Its exit is published once
// all the same, and its captures are counted as ended once.
func TestLastThreadsAtOnce(t *testing.T) {
	const victims = 500
	producertest.RequireBPF(t)
	meetAtExit(t)
	w := watch(t)
	if out, err := exec.Command(producertest.Built(t, "workload"), "killed", "--count",
		strconv.Itoa(victims)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	producertest.Eventually(t, "every exit is published", func() bool {
		return w.metrics.events[schema.OpExit].Load() >= victims
	})
	if n := int32(variable(t, "captures_open")); n != 0 {
		t.Errorf("%d captures are open", n)
	}
	for pid, p := range w.end(t) {
		if p.exits != 1 {
			t.Errorf("%d exits of process %d", p.exits, pid)
		}
	}
}

// meetAtExit delays a thread that ends, for a moment, until the next thread of its process ends too, so that both reach
// the producer's probe at once: BPF programs run in the order in which they were attached.
func meetAtExit(t *testing.T) {
	t.Helper()
	waiting, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { waiting.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:    ebpf.RawTracepoint,
		License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentPidTgid.Call(),
			asm.RSh.Imm(asm.R0, 32),
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.LoadMapValue(asm.R7, waiting.FD(), 0),
			asm.LoadMem(asm.R1, asm.R7, 0, asm.DWord),
			asm.JEq.Reg(asm.R1, asm.R6, "second"),
			asm.StoreMem(asm.R7, 0, asm.R6, asm.DWord),
			asm.Mov.Imm(asm.R9, 4_000),
			asm.LoadMem(asm.R1, asm.R7, 0, asm.DWord).WithSymbol("first"),
			asm.JNE.Reg(asm.R1, asm.R6, "on"),
			asm.FnKtimeGetNs.Call(),
			asm.Sub.Imm(asm.R9, 1),
			asm.JNE.Imm(asm.R9, 0, "first"),
			asm.Ja.Label("on"),
			asm.Mov.Imm(asm.R1, 0).WithSymbol("second"),
			asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("on"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// mapNamed opens a BPF map of this process.
func mapNamed(t testing.TB, name string) (found *ebpf.Map) {
	t.Helper()
	for _, m := range producertest.Maps(t) {
		if about, err := m.Info(); err == nil && about.Name == name && found == nil {
			found = m
			t.Cleanup(func() { m.Close() })
			continue
		}
		m.Close()
	}
	if found == nil {
		t.Fatalf("no map %s", name)
	}
	return found
}

// variable is a global variable of the programs.
func variable(t testing.TB, name string) uint32 {
	t.Helper()
	spec, err := bpfSpec()
	if err != nil {
		t.Fatal(err)
	}
	v := spec.Variables[name]
	raw, err := mapNamed(t, v.SectionName).LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	return le32(raw[v.Offset:])
}

// TestStartErrorNamesARemedy: an error at the start names its subject and what to do.
func TestStartErrorNamesARemedy(t *testing.T) {
	producertest.RequireBPF(t)
	tests := []struct {
		name  string
		spoil func(t *testing.T, cfg *config.Producer)
		want  []string
	}{
		{"no capability", func(t *testing.T, _ *config.Producer) { dropCapabilities(t) },
			[]string{"CAP_BPF", "run as root"}},
		{"no files", func(t *testing.T, _ *config.Producer) { fewFiles(t, 6) },
			[]string{"too many open files", "LimitNOFILE"}},
		{"no such library", func(_ *testing.T, cfg *config.Producer) { cfg.Libraries = []string{"/no/libcuda.so.1"} },
			[]string{"/no/libcuda.so.1"}},
		{"a library that is none", func(t *testing.T, cfg *config.Producer) {
			path := filepath.Join(t.TempDir(), "libcuda.so.1")
			if err := os.WriteFile(path, []byte("GROUP ( libcuda.so.580 )\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			cfg.Libraries = []string{path}
		}, []string{"libcuda.so.1", "ELF"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.DefaultProducer()
			cfg.Host, cfg.Libraries = "test", []string{producertest.Built(t, "stub/libcuda.so.1")}
			tt.spoil(t, &cfg)
			files := producertest.OpenFiles(t)
			p, err := New(cfg, "test", nil, slog.New(slog.DiscardHandler))
			if err == nil {
				p.Close()
				t.Fatal("it starts")
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not contain %q", err, text)
				}
			}
			runtime.GC()
			if now := producertest.OpenFiles(t); now > files {
				t.Errorf("%d files are left open", now-files)
			}
		})
	}
}

// dropCapabilities takes every capability from this goroutine's thread, which ends with the test.
func dropCapabilities(t *testing.T) {
	runtime.LockOSThread()
	head, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capset(&head, &none[0]); err != nil {
		t.Fatal(err)
	}
}

// fewFiles lets this process open only so many more files for the rest of the test.
func fewFiles(t *testing.T, more int) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	last, err := strconv.ParseUint(list[len(list)-1].Name(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	for fd := -1; fd < int(last)+more; { // no gaps below
		if fd, err = unix.Dup(0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	now := was
	now.Cur = last + uint64(2*more)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}
