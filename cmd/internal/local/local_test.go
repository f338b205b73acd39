package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nobody = 65534

// TestMain dials a socket if a variable names one, and prints the bytes that it reads.
func TestMain(m *testing.M) {
	if path := os.Getenv("LOCAL_DIAL"); path != "" {
		c, err := net.Dial("unix", path)
		if err == nil {
			_, _ = io.Copy(os.Stdout, c)
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serving listens in a directory for a server that greets and then echoes.
func serving(t *testing.T, dir string, pid int) *Listener {
	t.Helper()
	l, err := listen(dir, pid, func() (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = fmt.Fprintln(far, "hello from", pid)
			_, _ = io.Copy(far, far)
			_ = far.Close()
		}()
		return near, nil
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// shortDir is a directory whose path is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "local")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestBytesGoBothWays(t *testing.T) {
	t.Parallel()
	l := serving(t, shortDir(t), 7)
	info, err := os.Stat(l.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	c, err := net.Dial("unix", l.Path())
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for i, want := range []string{"hello from 7\n", "ping\n"} {
		if i > 0 {
			if _, err := io.WriteString(c, want); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := in.ReadString('\n'); err != nil || got != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
	}
	l.Close()
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("the connection outlives its listener")
	}
	if _, err := os.Stat(l.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket outlives its listener: %v", err)
	}
}

// TestOnlyRootAndTheUserAreLetIn dials as another user a socket that its mode would let in.
func TestOnlyRootAndTheUserAreLetIn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		uid, owner int
		want       bool
	}{{0, 0, true}, {0, 1000, true}, {1000, 1000, true}, {1000, 0, false}, {1001, 1000, false}, {-1, 1000, false}} {
		if got := admits(row.uid, row.owner); got != row.want {
			t.Errorf("user %d asks a process of user %d: %t", row.uid, row.owner, got)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := shortDir(t)
	l := serving(t, dir, 7)
	self, err := os.ReadFile("/proc/self/exe")
	program := filepath.Join(dir, "dial")
	err = errors.Join(err, os.WriteFile(program, self, 0o755), os.Chmod(dir, 0o755), os.Chmod(l.Path(), 0o666))
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]string{0: "hello from 7", nobody: ""} {
		cmd := exec.Command(program)
		cmd.Env, cmd.Dir = append(os.Environ(), "LOCAL_DIAL="+l.Path()), dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		if !strings.HasPrefix(line, want) || want == "" && line != "<nil>\n" {
			t.Errorf("user %d reads %q, want %q", uid, line, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func TestNewestIsFoundAndStaleSocketsAreRemoved(t *testing.T) {
	t.Parallel()
	dir, other := shortDir(t), shortDir(t)
	if _, err := find([]string{dir, other}, 0); !errors.Is(err, ErrNone) {
		t.Errorf("without sockets: %v", err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "run-3.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // as a killed process leaves it
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run-9.sock"), nil, 0o600); err != nil { // not a socket
		t.Fatal(err)
	}
	old, young := serving(t, dir, 8), serving(t, other, 5)
	if _, err := os.Stat(filepath.Join(dir, "run-3.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a stale socket is left: %v", err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old.Path(), past, past); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{0: young.Path(), 8: old.Path(), 5: young.Path(), 3: "", 9: ""} {
		if got, err := find([]string{dir, other}, pid); got.Path != want || (want == "") != errors.Is(err, ErrNone) {
			t.Errorf("PID %d: found %+v, %v; want %q", pid, got, err, want)
		} else if others := fmt.Sprint(got.Others); (pid == 0) != (others == "[8]") || pid != 0 && others != "[]" {
			t.Errorf("PID %d: the others are %s", pid, others)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	l := serving(t, shortDir(t), 7)
	greeted := 0
	for range maxConnections + 8 {
		c, err := net.Dial("unix", l.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if line, _ := bufio.NewReader(c).ReadString('\n'); line != "" {
			greeted++
		}
	}
	if greeted != maxConnections {
		t.Errorf("%d connections are open, want %d", greeted, maxConnections)
	}
}
