//go:build bpf

package bpf

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// tapped loads the programs with a filter and probes two functions of the stub.
func tapped(t *testing.T, filter Filter) *Tap {
	t.Helper()
	tap, err := Load(MinRingBytes, true, true, filter)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(tap.Close)
	ex, err := link.OpenExecutable("../bin/stub/libcuda.so.1")
	if err != nil {
		t.Fatal(err)
	}
	functions := []string{"cuMemAlloc_v2", "cuMemFree_v2"}
	options := &link.UprobeMultiOptions{Cookies: make([]uint64, len(functions))}
	exit, err := ex.UretprobeMulti(functions, tap.coll.Programs[TapProgMemoryExit], options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exit.Close() })
	entry, err := ex.UprobeMulti(functions, tap.coll.Programs[TapProgCallEnter], options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = entry.Close() })
	return tap
}

// callersIn reads the control ring to its end and returns the processes of its records.
func callersIn(t *testing.T, tap *Tap) []uint32 {
	t.Helper()
	ring, err := ringbuf.NewReader(tap.Control)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	ring.SetDeadline(time.Unix(1, 0))
	var callers []uint32
	for {
		record, err := ring.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return callers
		}
		if err != nil {
			t.Fatal(err)
		}
		if tgid := As[Head](record.RawSample).TGID; !slices.Contains(callers, tgid) {
			callers = append(callers, tgid)
		}
	}
}

// keysOf returns the keys of a map whose keys are pids.
func keysOf(t *testing.T, tap *Tap, name string) []uint32 {
	t.Helper()
	var keys []uint32
	var key uint32
	entries := tap.coll.Maps[name].Iterate()
	for value := make([]byte, tap.coll.Maps[name].ValueSize()); entries.Next(&key, &value); {
		keys = append(keys, key)
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestFilteredProcessLeavesNoState runs programs inside and outside the filter. Only those inside leave map entries and
// records.
func TestFilteredProcessLeavesNoState(t *testing.T) {
	tap := tapped(t, Filter{Comms: []string{"wanted"}})
	pids := map[string]uint32{}
	for _, name := range []string{"other", "wanted", "wanted2"} {
		program := filepath.Join(t.TempDir(), name)
		workload, err := filepath.Abs("../bin/workload")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(workload, program); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "train")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		pids[name] = uint32(cmd.Process.Pid)
	}
	want := []uint32{pids["wanted"]}
	if got := keysOf(t, tap, TapMapProcesses); !slices.Equal(got, want) {
		t.Errorf("map entries of processes %v, want %v of %v", got, want, pids)
	}
	if got := callersIn(t, tap); !slices.Equal(got, want) {
		t.Errorf("records of %v, want %v of %v", got, want, pids)
	}
	if lost, err := tap.Lost(); err != nil || lost != [LostCauses]uint64{} {
		t.Errorf("lost %v, %v", lost, err)
	}
}

// TestReusedPIDDoesNotPassFilter chooses a pid with the start time of an earlier process.
func TestReusedPIDDoesNotPassFilter(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read go; exec ../bin/workload train")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tap := tapped(t, Filter{PIDs: map[uint32]uint64{uint32(cmd.Process.Pid): 1}})
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := callersIn(t, tap); len(got) != 0 {
		t.Errorf("records of %v", got)
	}
}

// TestWatchCgroupsReportsInode expects the inode of each new group.
func TestWatchCgroupsReportsInode(t *testing.T) {
	const mount = "/sys/fs/cgroup/"
	dir := mount + "unified"
	if _, err := os.Stat(dir); err != nil {
		dir = mount
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err != nil {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal(err)
		}
		t.Skip("no cgroup2: ", err)
	}
	watch, err := WatchCgroups()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	name := "/gputap-watch-test"
	if err := os.Mkdir(dir+name, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir + name)
	for {
		id, path, err := watch.Next(time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if path != name {
			continue // of another program
		}
		info, err := os.Stat(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Ino != id {
			t.Errorf("id %d, inode %d", id, stat.Ino)
		}
		break
	}
	watch.Close()
	if _, _, err := watch.Next(time.Time{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
}
