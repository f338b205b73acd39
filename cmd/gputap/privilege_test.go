//go:build bpf

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/cmd/internal/report"
)

// Users of these tests: gputap is one of them, the workload another, and neither is root.
const (
	watcherUID  = 65534
	workloadUID = 12345
)

var capabilities = map[string]uintptr{
	"CAP_BPF": unix.CAP_BPF, "CAP_PERFMON": unix.CAP_PERFMON,
	"CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
}

// open copies the programs to where every user may run them.
func open(t *testing.T) string {
	requireBPF(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"gputap", "workload", "stub/libcuda.so.1"} {
		data, err := os.ReadFile(fixture(t, name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// watcher is gputap without root, with all four capabilities but one.
func watcher(t *testing.T, dir, without string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "gputap"), append([]string{"run", "--metrics-addr", ""},
		args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: watcherUID, Gid: watcherUID}}
	for name, number := range capabilities {
		if name != without {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, number)
		}
	}
	return cmd
}

// asWorkload runs the workload as its own user, up to its first step.
func asWorkload(t *testing.T, dir, truths string, args ...string) (proceed func()) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "workload"), append(args, "--steps")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: workloadUID, Gid: workloadUID}}
	cmd.Env = []string{"GPUTAP_STUB_TRUTH=" + truths}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(stdout).Scan() {
		t.Fatal("the workload does not come to its first step")
	}
	return func() {
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Errorf("workload: %v", err)
		}
	}
}

// until reads gputap's log up to a line that has a text.
func until(t *testing.T, log *bufio.Scanner, text string) (lines []string) {
	for log.Scan() {
		lines = append(lines, log.Text())
		if strings.Contains(log.Text(), text) {
			return lines
		}
	}
	t.Fatalf("gputap ended without saying %q: %s", text, strings.Join(lines, "\n"))
	return nil
}

// TestFourCapabilities: without root, with the four and nothing else, everything is seen.
func TestFourCapabilities(t *testing.T) {
	dir := open(t)
	closed := filepath.Join(dir, "stub") // no user but the workload's may look into it
	if err := os.Chown(closed, workloadUID, workloadUID); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	truths := t.TempDir()
	if err := os.Chown(truths, workloadUID, workloadUID); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(truths), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := watcher(t, dir, "", "-o", "json", "--display-interval", "50ms", "--library",
		filepath.Join(closed, "libcuda.so.1"))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(stderr)
	until(t, log, "library attached")
	holdsOnly(t, cmd.Process.Pid)
	proceed := asWorkload(t, dir, truths, "train")
	reports := bufio.NewReader(stdout)
	for seen := false; !seen; { // the program waits at its step, because its identity is read from /proc
		line, err := reports.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		seen = strings.Contains(line, `"comm":"workload"`)
	}
	proceed()
	_ = cmd.Process.Signal(os.Interrupt)
	rest, err := io.ReadAll(reports)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stderr)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(rest)), "\n")
	var last report.Snapshot
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if len(last.Processes) != 1 {
		t.Fatalf("%d processes, want 1", len(last.Processes))
	}
	p := last.Processes[0]
	const unfreed, peak = 54<<20 + 258<<10, 70<<20 + 258<<10 // the workload fails if the stub counts other figures
	if p.UnfreedBytes != unfreed || p.PeakBytes != peak {
		t.Errorf("unfreed %d, peak %d, want %d and %d", p.UnfreedBytes, p.PeakBytes, unfreed, peak)
	}
	if p.UID != workloadUID || p.Exe != filepath.Join(dir, "workload") || p.Evidence != "complete" {
		t.Errorf("uid %d, exe %q, evidence %s", p.UID, p.Exe, p.Evidence)
	}
}

// holdsOnly fails unless a process has the four capabilities and no other.
func holdsOnly(t *testing.T, pid int) {
	head, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3, Pid: int32(pid)}, [2]unix.CapUserData{}
	if err := unix.Capget(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
	want := [2]uint32{}
	for _, c := range capabilities {
		want[c/32] |= 1 << (c % 32)
	}
	for i, d := range data {
		if d.Effective != want[i] || d.Permitted != want[i] {
			t.Fatalf("capabilities %x of %x, want %x", d.Effective, d.Permitted, want[i])
		}
	}
}

// TestVitalCapabilities: without one of these nothing starts, and the message names it and no other.
func TestVitalCapabilities(t *testing.T) {
	dir := open(t)
	for _, name := range []string{"CAP_BPF", "CAP_PERFMON"} {
		t.Run(name, func(t *testing.T) {
			cmd := watcher(t, dir, name, "--library", filepath.Join(dir, "stub/libcuda.so.1"), "--for", "1s")
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != 6 {
				t.Errorf("ends with %d, want 6", got)
			}
			for _, text := range []string{name + " is missing", "run as root, or give it to the service"} {
				if !strings.Contains(string(out), text) {
					t.Errorf("does not say %q: %s", text, out)
				}
			}
			for other := range capabilities {
				if other != name && strings.Contains(string(out), other) {
					t.Errorf("names %s: %s", other, out)
				}
			}
		})
	}
}

// TestLesserCapabilities checks that without one of these capabilities gputap continues, and logs once what it cannot
// see.
func TestLesserCapabilities(t *testing.T) {
	dir := open(t)
	truths := t.TempDir()
	if err := os.Chmod(truths, 0o777); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "stub")
	for name, missing := range map[string]string{
		"CAP_SYS_PTRACE": "no CUDA driver library found yet", "CAP_DAC_READ_SEARCH": "library not attached",
		"": "library attached",
	} {
		t.Run("without "+name, func(t *testing.T) {
			mode := os.FileMode(0o755)
			if name != "CAP_SYS_PTRACE" { // it is the directory that keeps others out, then
				mode = 0o700
			}
			if err := os.Chown(closed, workloadUID, workloadUID); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(closed, mode); err != nil {
				t.Fatal(err)
			}
			defer asWorkload(t, dir, truths, "leak3")()
			cmd := watcher(t, dir, name, "--for", "100ms")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			lines := strings.Split(string(out), "\n")
			warned := slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
				return !strings.Contains(l, "is missing: without it")
			})
			if name == "" && len(warned) != 0 || name != "" &&
				(len(warned) != 1 || !strings.Contains(warned[0], name)) {
				t.Errorf("warns %q", warned)
			}
			if !strings.Contains(string(out), missing) {
				t.Errorf("does not say %q: %s", missing, out)
			}
		})
	}
}

// TestClosedLibrary: a named library that may not be opened says which capability opens it.
func TestClosedLibrary(t *testing.T) {
	dir := open(t)
	closed := filepath.Join(dir, "stub")
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := watcher(t, dir, "CAP_DAC_READ_SEARCH", "--library", filepath.Join(closed, "libcuda.so.1"))
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 6 || !strings.Contains(string(out), "missing CAP_DAC_READ_SEARCH") {
		t.Errorf("ends with %d: %s", got, out)
	}
}
