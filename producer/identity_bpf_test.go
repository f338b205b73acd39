//go:build bpf

package producer

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

// watch is a producer on the stub that runs until what it does is done; it returns what was published.
func watchWith(t *testing.T, cfg config.Producer, log *slog.Logger, do func(*Producer)) [][]byte {
	t.Helper()
	requireBPF(t)
	js := newBus(t)
	cfg.Host, cfg.Libraries = "test", []string{stub(t, "stub/libcuda.so.1")}
	p, err := New(cfg, "test", js, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	do(p)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return stored(t, js)
}

// processesIn are the processes of the batches of one kind.
func processesIn(t *testing.T, messages [][]byte, kind schema.Kind) []schema.Process {
	var list []schema.Process
	seen := map[schema.Process]bool{}
	each(t, messages, kind, func(b *schema.Batch) {
		for _, p := range b.Processes {
			if !seen[p] {
				seen[p] = true
				list = append(list, p)
			}
		}
	})
	return list
}

// newCgroup makes a control group of version 2, below one of this test's own, and removes it at the end.
// It returns its path in the hierarchy and its directory.
func newCgroup(t *testing.T, names ...string) (group, dir string) {
	t.Helper()
	requireBPF(t)
	mount, err := cgroup2Mount()
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	group = "/"
	for _, name := range append([]string{"gputap-test-" + strconv.Itoa(os.Getpid()) + ".service"}, names...) {
		group = filepath.Join(group, name)
		made := filepath.Join(mount, group)
		switch err := os.Mkdir(made, 0o755); {
		case err == nil:
			t.Cleanup(func() { _ = os.Remove(made) })
		case !os.IsExist(err):
			t.Fatal(err)
		}
	}
	return group, filepath.Join(mount, group)
}

// in makes a command start in a control group.
func in(t *testing.T, cmd *exec.Cmd, dir string) *exec.Cmd {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	return cmd
}

// start starts a workload with --steps, and returns when it stands at its first; end lets it go on and
// waits for it.
func start(t *testing.T, cmd *exec.Cmd) (end func()) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Errorf("workload's first step: %v", err)
	}
	return func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("workload: %v", err)
		}
	}
}

// TestIdentityOfAContainer: a workload of another user, the first process of its own pid namespace, in a
// group named as containerd names those of pods.
func TestIdentityOfAContainer(t *testing.T) {
	const nobody = 65534
	group, dir := newCgroup(t, "kubepods-burstable-pod"+podSlice+".slice", "cri-containerd-"+ctr+".scope")
	cmd := in(t, exec.Command(stub(t, "workload"), "leak3", "--steps"), dir)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	messages := watchWith(t, config.DefaultProducer(), slog.New(slog.DiscardHandler), func(p *Producer) {
		end := start(t, cmd)
		for p.metrics.processes.Load() == 0 && t.Context().Err() == nil {
			runtime.Gosched()
		}
		end()
	})
	found := processesIn(t, messages, schema.KindMemory)
	if len(found) != 1 {
		t.Fatalf("%d processes: %+v", len(found), found)
	}
	var names accounts
	want := schema.Process{
		PID: uint32(cmd.Process.Pid), Start: found[0].Start, UID: nobody, Comm: "workload", Exe: stub(t, "workload"), Container: ctr,
		User: names.name(nobody), NSPID: 1, Cgroup: group, Pod: pod, Unit: "gputap-test-" + strconv.Itoa(os.Getpid()) + ".service",
	}
	if found[0] != want || want.User == "" || want.Start == 0 {
		t.Errorf("got\n%+v, want\n%+v", found[0], want)
	}
}
