package cluster

import (
	"fmt"
	"io"
	mathbits "math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessRunsOnItsCPUs: the child is pinned and gets GOMAXPROCS.
func TestProcessRunsOnItsCPUs(t *testing.T) {
	var ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &ours); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !ours.IsSet(cpu) {
		cpu++
	}
	dir := t.TempDir()
	p := &Process{Name: "p", Dir: dir, CPUs: []int{cpu}, Out: filepath.Join(dir, "out"),
		Args: []string{"/bin/sh", "-c", "grep Cpus_allowed: /proc/self/status; echo $GOMAXPROCS"}}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(p.Out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 3 || lines[2] != "1" || bits(lines[1]) != 1 {
		t.Fatalf("the child printed %q, want one CPU", out)
	}
}

// bits counts the set bits of a hexadecimal mask.
func bits(mask string) (n int) {
	for _, digit := range strings.ReplaceAll(mask, ",", "") {
		v, _ := strconv.ParseUint(string(digit), 16, 8)
		n += mathbits.OnesCount64(v)
	}
	return n
}

// TestUsageOnlyGrows: the CPU time of a process is still known after its end.
func TestUsageOnlyGrows(t *testing.T) {
	p := &Process{Name: "p", Dir: t.TempDir(), Args: []string{"/bin/sh", "-c", "while :; do :; done"}}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	var last Usage
	for deadline := time.Now().Add(time.Minute); last.CPU < 100*time.Millisecond; {
		u, err := p.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if u.CPU < last.CPU || time.Now().After(deadline) {
			t.Fatalf("usage %+v after %+v", u, last)
		}
		last = u
		time.Sleep(5 * time.Millisecond)
	}
	p.Kill()
	if u, err := p.Usage(); err != nil || u.CPU < last.CPU-20*time.Millisecond { // rusage is coarser
		t.Fatalf("after the end %+v, %v, before %+v", u, err, last)
	}
}

func TestUsageNeedsAStart(t *testing.T) {
	if _, err := (&Process{Name: "p"}).Usage(); err == nil {
		t.Fatal("a process that was not started has a usage")
	}
}

// TestStopRequiresStatusZero: a program that fails while it stops, or ended earlier, is an error that says why.
func TestStopRequiresStatusZero(t *testing.T) {
	const trapped = "; echo ready; while :; do sleep 0.01; done"
	for _, row := range []struct{ name, script, want string }{
		{"status 0", "trap 'exit 0' TERM" + trapped, ""},
		{"status 3", "trap 'echo panic: at the end; exit 3' TERM" + trapped,
			"p failed while it stopped: exit status 3: panic: at the end"},
		{"crashed before", "echo ready; echo 'fatal error: early'; exit 2",
			"p ended by itself: exit status 2: fatal error: early"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := &Process{Name: "p", Dir: t.TempDir(), Args: []string{"/bin/sh", "-c", row.script}}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			if err := Until(t.Context(), time.Minute, func() error {
				text, err := os.ReadFile(p.Log())
				if err == nil && (!strings.Contains(string(text), "ready") || strings.Contains(row.script, "early") &&
					p.Running()) {
					err = fmt.Errorf("the log is %q", text)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			switch err := p.Stop(syscall.SIGTERM, time.Minute); {
			case row.want == "" && err != nil:
				t.Error(err)
			case row.want != "" && (err == nil || !strings.HasPrefix(err.Error(), row.want)):
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

// TestResultIsTheJSONOfASuccess: a program that fails, or prints something else, has no result.
func TestResultIsTheJSONOfASuccess(t *testing.T) {
	for script, want := range map[string]string{
		"echo 1.5": "", "echo 1.5; exit 3": "p failed: exit status 3", "echo x": "read the output of p: invalid",
	} {
		dir := t.TempDir()
		p := &Process{Name: "p", Dir: dir, Out: filepath.Join(dir, "out"), Args: []string{"/bin/sh", "-c", script}}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		defer p.Kill()
		var got float64
		switch err := p.Result(t.Context(), &got); {
		case want == "" && (err != nil || got != 1.5):
			t.Errorf("%s: %v, %v", script, got, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", script, err, want)
		}
	}
}

// TestCloseEndsInReverseOrder: Close calls the last clean-up first.
func TestCloseEndsInReverseOrder(t *testing.T) {
	w, err := NewWorkspace(t.TempDir(), "test", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Name: "p", Args: []string{"/bin/sleep", "60"}}
	undone := false
	w.Cleanup(func() { undone = !p.Running() })
	if err := w.Start(p); err != nil {
		t.Fatal(err)
	}
	w.Close(false)
	if _, err := os.Stat(w.Dir); !undone || !os.IsNotExist(err) {
		t.Errorf("the process had ended: %t; the directory: %v", undone, err)
	}
}
