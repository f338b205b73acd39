package producertest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// RequireBPF skips a test where probes cannot be attached. It fails instead if GPUTAP_REQUIRE_BPF is set.
func RequireBPF(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
		t.Fatal("GPUTAP_REQUIRE_BPF is set and this is not root")
	}
	t.Skip("uprobes need root")
}

// Built returns the path of a file that make stub builds into bin, such as "workload" or "stub/libcuda.so.1".
func Built(t testing.TB, file string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "bin", file)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("bin/%s does not exist: run make stub", file)
	return ""
}

// CopyWorkload copies the workload and a driver library of its own into a folder, and returns the workload's path.
func CopyWorkload(t testing.TB, dir string) string {
	t.Helper()
	for _, file := range []string{"workload", "stub/libcuda.so.1"} {
		CopyFile(t, Built(t, file), filepath.Join(dir, filepath.Base(file)))
	}
	return filepath.Join(dir, "workload")
}

// CopyFile copies an executable file; it makes the folder.
func CopyFile(t testing.TB, from, to string) {
	t.Helper()
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

// Steps is a workload that waits at its steps.
type Steps struct {
	*exec.Cmd
	Out *bufio.Reader

	t  testing.TB
	in io.WriteCloser
}

// StartSteps starts a command, such as the workload with --steps.
func StartSteps(t testing.TB, cmd *exec.Cmd) *Steps {
	t.Helper()
	s := &Steps{Cmd: cmd, t: t}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.in, s.Out = in, bufio.NewReader(out)
	return s
}

// Await waits until the program is at a step.
func (s *Steps) Await(name string) {
	s.t.Helper()
	line, err := s.Out.ReadString('\n')
	if err != nil || line != "step "+name+"\n" {
		s.t.Fatalf("the program wrote %q (%v), not step %s", line, err, name)
	}
}

// Continue lets the program leave its step.
func (s *Steps) Continue() { fmt.Fprintln(s.in) }

// CloseInput lets the program leave this step and all later ones.
func (s *Steps) CloseInput() { s.in.Close() }

// Finish lets the program run to its end, and returns its pid.
func (s *Steps) Finish() uint32 {
	s.t.Helper()
	s.in.Close()
	if err := s.Wait(); err != nil {
		s.t.Error(err)
	}
	return uint32(s.Process.Pid)
}

// Eventually waits until a condition holds, for at most ten seconds.
func Eventually(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", condition)
		}
	}
}

// OpenFiles counts the open files of this process.
func OpenFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// MapEntries counts the entries of this process's BPF hash maps.
func MapEntries(t testing.TB) map[string]int {
	t.Helper()
	entries := map[string]int{}
	for _, m := range Maps(t) {
		if m.Type() == ebpf.Hash {
			entries[m.String()] += 0
			var key, value []byte
			for it := m.Iterate(); it.Next(&key, &value); {
				entries[m.String()]++
			}
		}
		m.Close()
	}
	if len(entries) == 0 {
		t.Error("no BPF hash map was found")
	}
	return entries
}

// Maps opens the BPF maps of this process; the caller closes them.
func Maps(t testing.TB) (maps []*ebpf.Map) {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		info, _ := os.ReadFile(path)
		_, line, isMap := strings.Cut(string(info), "map_id:\t")
		var id ebpf.MapID
		if _, err := fmt.Sscan(line, &id); !isMap || err != nil {
			continue
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		maps = append(maps, m)
	}
	return maps
}
