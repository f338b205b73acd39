package cluster

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessRunsOnItsCPUs: the child has the CPU and a Go program in it as many; whoever started it keeps its own.
func TestProcessRunsOnItsCPUs(t *testing.T) {
	runtime.LockOSThread() // the one that starts the child
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !before.IsSet(cpu) {
		cpu++
	}
	dir := t.TempDir()
	p := &Process{Name: "p", Dir: dir, CPUs: []int{cpu}, Out: filepath.Join(dir, "out"), Args: []string{"/bin/sh", "-c", "grep Cpus_allowed: /proc/self/status; echo $GOMAXPROCS"}}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if !p.wait(time.Minute) || p.Err() != nil {
		t.Fatalf("it ended with %v", p.Err())
	}
	out, err := os.ReadFile(p.Out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 3 || lines[2] != "1" || bits(lines[1]) != 1 {
		t.Fatalf("the child says %q, want one CPU", out)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Fatalf("the CPUs of the test are %v afterwards, and were %v", after, before)
	}
}

// bits counts those of a hexadecimal mask.
func bits(mask string) (n int) {
	for _, digit := range mask {
		n += strings.Count(map[rune]string{'1': "1", '2': "1", '4': "1", '8': "1", '3': "11", '5': "11", '6': "11", '7': "111", '9': "11",
			'a': "11", 'b': "111", 'c': "11", 'd': "111", 'e': "111", 'f': "1111"}[digit], "1")
	}
	return n
}

func TestProcessOnNoSuchCPU(t *testing.T) {
	p := &Process{Name: "p", Dir: t.TempDir(), CPUs: []int{1023}, Args: []string{"/bin/true"}}
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "[1023]") {
		t.Fatalf("got %v, want an error that names the CPU", err)
	}
}

// TestUsageCountsThreadsThatEnded: CPU time only grows, and goes on counting after the end.
func TestUsageCountsThreadsThatEnded(t *testing.T) {
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
		if u.CPU < last.CPU || u.Resident <= 0 || time.Now().After(deadline) {
			t.Fatalf("usage %+v after %+v", u, last)
		}
		last = u
		time.Sleep(5 * time.Millisecond)
	}
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
	if u, err := p.Usage(); err != nil || u.CPU < last.CPU-20*time.Millisecond { // rusage has its own grain
		t.Fatalf("at the end %+v, %v, after %+v", u, err, last)
	}
}

func TestUsageOfNothing(t *testing.T) {
	if _, err := (&Process{Name: "p"}).Usage(); err == nil {
		t.Fatal("no error of a process that was not started")
	}
}
