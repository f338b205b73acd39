//go:build bpf

package attach

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// mapExecutable maps a file into this process as a loader does.
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

// warnings counts the warnings about libraries that were not attached.
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

// runWarned is run, and counts warnings.
func (h *host) runWarned(t testing.TB) *warnings {
	warned := &warnings{}
	h.log = slog.New(warned)
	h.run(t)
	return warned
}

// TestLibrariesComeAndGo: a process maps and unmaps new copies of the library, some deleted at once, faster than they
// can be attached. Nothing stalls, no warning is logged, nothing is left.
func TestLibrariesComeAndGo(t *testing.T) {
	h := newHost(t)
	h.CatchUp()
	h.read()
	files, goroutines := producertest.OpenFiles(t), runtime.NumGoroutine()
	warned := h.runWarned(t)
	dir := t.TempDir()
	var unmapped sync.WaitGroup
	for i := range 200 {
		unmapped.Add(1)
		path := filepath.Join(dir, fmt.Sprint(i), "libcuda.so.1")
		producertest.CopyFile(t, producertest.Built(t, "stub/libcuda.so.1"), path)
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
	program := producertest.CopyWorkload(t, t.TempDir())
	s := startLater(t, program)
	s.Await("mapped")
	h.awaitAttached(t, s)
	s.Finish()
	producertest.Eventually(t, "none is pending", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.pending) == 0
	})
	if h.under(dir) == 0 {
		t.Error("none was ever attached: the test shows little")
	}
	h.stop()
	h.CatchUp()
	h.scan(true) // this process runs on, so no record reports its unmapping
	h.pass(3)
	if n := h.under(dir); n != 0 {
		t.Errorf("%d libraries are attached that nobody has mapped", n)
	}
	if n := warned.n.Load(); n != 0 {
		t.Errorf("%d warnings about unmapped libraries", n)
	}
	producertest.Eventually(t, "goroutines and files are as before", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() <= goroutines && producertest.OpenFiles(t) <= files
	})
	h.end(t)
}

// TestFileChangesBeforeAttach: the file changed by the time it is probed.
func TestFileChangesBeforeAttach(t *testing.T) {
	h := newHost(t)
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
				producertest.CopyFile(t, producertest.Built(t, "stub/libcuda.so.1"), path)
				file, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				files := producertest.OpenFiles(t)
				var a *attachment
				if late {
					a, err = attachLate(h, file, func() error { return tt.change(path) })
				} else {
					if err := tt.change(path); err != nil {
						t.Fatal(err)
					}
					a, err = attachFile(h.tap, file, 1, path, h.wanted)
				}
				good := tt.good || late && tt.name == "overwritten" // its bytes are probed, whatever they are
				if (err == nil) != good {
					t.Errorf("attached %v, error %v", a != nil, err)
				}
				if a != nil {
					a.close()
				}
				if now := producertest.OpenFiles(t); now > files {
					t.Errorf("%d files are left open", now-files)
				}
			})
		}
	}
	h.end(t)
}

// attachLate is attachFile, with a change between reading the exports and probing.
func attachLate(h *host, file *os.File, between func() error) (*attachment, error) {
	found, err := library.Read(file, h.wanted.calls(schema.DriverLibrary))
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
	return a, a.probe(h.tap, executable, found.Sites, h.wanted)
}

// TestFileThatIsNoLibrary: a text file with the driver's name, mapped again and again, is tried once and warned of
// once.
func TestFileThatIsNoLibrary(t *testing.T) {
	h := newHost(t)
	warned := h.runWarned(t)
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, []byte("INPUT(libcuda.so.580)\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	held := mapExecutable(t, path)
	defer held()
	producertest.Eventually(t, "a warning is logged", func() bool { return warned.n.Load() > 0 })
	for range 50 {
		mapExecutable(t, path)()
	}
	other := startLater(t, producertest.CopyWorkload(t, t.TempDir()))
	other.Await("mapped")
	h.awaitAttached(t, other) // so the records before it were handled
	other.Finish()
	h.scan(true)
	h.stop()
	if n, failed := warned.n.Load(), testutil.ToFloat64(h.metrics.attachFailed); n != 1 || failed != 1 {
		t.Errorf("%d warnings and %v failures, want 1 of each", n, failed)
	}
	h.end(t)
}
