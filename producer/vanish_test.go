//go:build bpf

package producer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// mapExecutable maps a file as a loader does, in this process, and gives what unmaps it.
func mapExecutable(t testing.TB, path string) (unmap func()) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() { _ = unix.Munmap(data) })
}

// warnings counts what is said of libraries that were not attached.
type warnings struct {
	slog.Handler
	n atomic.Int64
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "library not attached" {
		w.n.Add(1)
	}
	return nil
}

// looking lets a producer's probes look for libraries, as Run does, until stop.
func (w *watching) looking(t testing.TB) (warned *warnings, stop func()) {
	warned = &warnings{}
	w.probes.log = slog.New(warned)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { w.probes.run(ctx, time.Hour) })
	return warned, func() { cancel(); group.Wait() }
}

// TestLibrariesComeAndGo: a process maps and unmaps fresh copies of the library, some deleted at once, faster
// than they can be attached. Nothing stalls, nothing is warned of, nothing is left.
func TestLibrariesComeAndGo(t *testing.T) {
	w := prepare(t)
	w.step(t)
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	warned, stop := w.looking(t)
	dir := t.TempDir()
	var unmapped sync.WaitGroup
	for i := range 200 {
		unmapped.Add(1)
		path := filepath.Join(dir, fmt.Sprint(i), "libcuda.so.1")
		copyFile(t, stub(t, "stub/libcuda.so.1"), path)
		unmap := mapExecutable(t, path)
		if i%3 == 0 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(time.Duration(i%20)*time.Millisecond, func() {
			unmap()
			unmapped.Done()
		})
	}
	unmapped.Wait()
	program := workloadCopy(t, t.TempDir())
	s := startSteps(t, exec.Command(program, "later", "--steps"))
	s.await("mapped")
	w.attached(t, s)
	s.finish()
	eventually(t, "none waits", func() bool {
		w.probes.mu.Lock()
		defer w.probes.mu.Unlock()
		return len(w.probes.pending) == 0
	})
	if w.under(dir) == 0 {
		t.Error("none was ever attached: little is shown")
	}
	stop()
	w.probes.side.catchUp()
	now := bootTime() + leaveGrace
	w.probes.scanAll() // this process goes on, so no record says what it has unmapped
	for range 3 {
		w.probes.step(now)
		now += unusedGrace
	}
	w.probes.closing.Wait()
	if n := w.under(dir); n != 0 {
		t.Errorf("%d libraries are attached that nobody has mapped", n)
	}
	if n := warned.n.Load(); n != 0 {
		t.Errorf("%d warnings of libraries that were only gone", n)
	}
	eventually(t, "goroutines and files are as before", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
	})
	w.run(t)
	w.end(t)
}

// TestFileChangesBeforeAttach: the file is another by the time it is probed.
func TestFileChangesBeforeAttach(t *testing.T) {
	w := prepare(t)
	tests := []struct {
		name   string
		change func(path string) error
		good   bool
	}{
		{"unchanged", func(string) error { return nil }, true},
		{"deleted", os.Remove, true},
		{"replaced", func(path string) error {
			if err := os.WriteFile(path+".new", []byte("another"), 0o755); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, true},
		{"emptied", func(path string) error { return os.Truncate(path, 0) }, false},
		{"cut in its header", func(path string) error { return os.Truncate(path, 40) }, false},
		{"cut to a page", func(path string) error { return os.Truncate(path, 4096) }, false},
		{"overwritten", func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o755) }, false},
	}
	for _, tt := range tests {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after its symbols were read %v", tt.name, late), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "libcuda.so.1")
				copyFile(t, stub(t, "stub/libcuda.so.1"), path)
				file, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				files := openFiles(t)
				var a *attachment
				if late {
					a, err = attachLate(w, file, func() error { return tt.change(path) })
				} else {
					if err := tt.change(path); err != nil {
						t.Fatal(err)
					}
					a, err = attach(w.tap, file, 1, path, w.probes.wanted)
				}
				good := tt.good || late && tt.name == "overwritten" // what stands there is probed: anybody may write such a file
				if (err == nil) != good {
					t.Errorf("attached %v, error %v", a != nil, err)
				}
				if a != nil {
					a.close()
				}
				if now := openFiles(t); now > files {
					t.Errorf("%d files are left open", now-files)
				}
			})
		}
	}
	w.run(t)
	w.end(t)
}

// attachLate is attach, with something that happens between its looking and its probing.
func attachLate(w *watching, file *os.File, between func() error) (*attachment, error) {
	found, err := readExports(file, w.probes.wanted.calls())
	if err != nil {
		return nil, err
	}
	if err := between(); err != nil {
		return nil, err
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, err
	}
	a := &attachment{probed: map[string]bool{}}
	return a, a.probe(w.tap, executable, found.sites, w.probes.wanted)
}

// TestNoLibrary: a text that is called like the driver and mapped like it, again and again, is tried once and
// warned of once.
func TestNoLibrary(t *testing.T) {
	w := prepare(t)
	warned, stop := w.looking(t)
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, []byte("INPUT(libcuda.so.580)\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	held := mapExecutable(t, path)
	defer held()
	eventually(t, "it is warned of", func() bool { return warned.n.Load() > 0 })
	for range 50 {
		mapExecutable(t, path)()
	}
	other := startSteps(t, exec.Command(workloadCopy(t, t.TempDir()), "later", "--steps"))
	other.await("mapped")
	w.attached(t, other) // so the records before it have been dealt with
	other.finish()
	w.probes.scanAll()
	stop()
	if n, failed := warned.n.Load(), w.metrics.attachFailed.Load(); n != 1 || failed != 1 {
		t.Errorf("%d warnings and %d failures, want 1 of each", n, failed)
	}
	w.run(t)
	w.end(t)
}
