//go:build bpf

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gputap/gputap/producer/producertest"
)

// audit runs gputap doctor --pid and returns its rows by the name of their check.
func audit(t *testing.T, pid int, args ...string) (rows map[string]finding, status int) {
	stdout, stderr, status := gputap(t, append([]string{"doctor", "-o", "json", "--pid", strconv.Itoa(pid)},
		args...)...)
	var got struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	if got.OK != (status == 0) {
		t.Errorf("ok is %t and the exit status %d", got.OK, status)
	}
	rows = map[string]finding{}
	for _, f := range got.Checks {
		rows[f.Check] = f
	}
	return rows, status
}

// TestDoctorAuditsAProcess that allocates and frees 4,000 times a second and ran before.
func TestDoctorAuditsAProcess(t *testing.T) {
	requireBPF(t)
	workload := exec.Command(fixture(t, "workload"), "rate", "--rate", "4000", "--seconds", "60")
	if err := workload.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = workload.Process.Kill()
		_ = workload.Wait()
	}()
	rows, status := audit(t, workload.Process.Pid, "--for", "500ms")
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	for check, want := range map[string][2]string{
		"process": {statusOK, "workload"}, "driver": {statusOK, "libcuda.so.1"},
		"holds": {statusOK, "driver functions"},
		"watch": {statusOK, "cuMemAlloc_v2"}, "before": {statusWarn, "not seen"},
	} {
		if f := rows[check]; f.Status != want[0] || !strings.Contains(f.Found, want[1]) {
			t.Errorf("%s: %+v, want %v", check, f, want)
		}
	}
}

// TestDoctorChecksTorch: doctor names the file of PyTorch's library, and tells whether gputap sees its allocator.
func TestDoctorChecksTorch(t *testing.T) {
	requireBPF(t)
	changed := t.TempDir()
	for _, file := range []string{"workload", "stub/libcuda.so.1", "stub/changed/libc10.so"} {
		producertest.CopyFile(t, fixture(t, file), filepath.Join(changed, filepath.Base(file)))
	}
	for name, tt := range map[string]struct{ program, path, status, found string }{
		"as known": {fixture(t, "workload"), fixture(t, "stub/libc10.so"), statusOK, "sees the blocks"},
		"changed": {filepath.Join(changed, "workload"), filepath.Join(changed, "libc10.so"), statusWarn,
			"does not export c10::reportMemoryUsageToProfiler"},
	} {
		t.Run(name, func(t *testing.T) {
			s := producertest.StartSteps(t, exec.Command(tt.program, "tensors-late", "--steps"))
			defer func() {
				_ = s.Process.Kill()
				_ = s.Wait()
			}()
			for line := ""; line != "step allocated\n"; {
				var err error
				if line, err = s.Out.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			rows, _ := audit(t, s.Process.Pid, "--for", "1ms")
			if f := rows["torch"]; f.Status != tt.status || !strings.HasPrefix(f.Found, tt.path) ||
				!strings.Contains(f.Found, tt.found) {
				t.Errorf("--pid: %+v, want %+v", f, tt)
			}
			stdout, _, _ := gputap(t, "doctor", "--library", fixture(t, "stub/libcuda.so.1"))
			if !strings.Contains(stdout, tt.path) {
				t.Errorf("doctor does not name %s:\n%s", tt.path, stdout)
			}
		})
	}
}

func TestDoctorOfNoProcess(t *testing.T) {
	requireBPF(t)
	rows, status := audit(t, 1<<22-1)
	if f := rows["process"]; status != 3 || f.Status != statusFail || f.Remedy == "" {
		t.Errorf("exit status %d, %+v", status, f)
	}
	if _, stderr, status := gputap(t, "doctor", "--pid", "1", "--for", "0s"); status != 2 ||
		!strings.Contains(stderr, "--for") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}
