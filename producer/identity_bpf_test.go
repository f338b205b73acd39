//go:build bpf

package producer

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// watchWith runs a producer on the stub while do runs; it returns the published batches.
func watchWith(t *testing.T, cfg config.Producer, log *slog.Logger, do func(*Producer)) [][]byte {
	t.Helper()
	producertest.RequireBPF(t)
	js := newBus(t)
	cfg.Host, cfg.Libraries = "test", []string{producertest.Built(t, "stub/libcuda.so.1")}
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

// processesIn returns the processes of the batches of one kind.
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

// start starts a workload with --steps and waits for its first step; end lets it continue and waits for its end.
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

const (
	ctr      = "4bfc2c2d1ed3a1c8c1fbd0f6ec9d2f8ac1a8a8d6b9b5f3f0b1a9d8e7c6b5a493"
	pod      = "7c0a4f3e-52d1-4a1c-9f86-d081884c7d65"
	podSlice = "7c0a4f3e_52d1_4a1c_9f86_d081884c7d65"
)

// TestIdentityOfAContainer: a workload of another user is the first process of its own pid namespace, in a control
// group with the name that containerd gives to pods.
func TestIdentityOfAContainer(t *testing.T) {
	const nobody = 65534
	group, dir := producertest.NewCgroup(t, "kubepods-burstable-pod"+podSlice+".slice", "cri-containerd-"+ctr+".scope")
	cmd := in(t, exec.Command(producertest.Built(t, "workload"), "leak3", "--steps"), dir)
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
	var names procfs.Accounts
	want := schema.Process{
		PID: uint32(cmd.Process.Pid), Start: found[0].Start, UID: nobody, Comm: "workload", Exe: producertest.Built(t,
			"workload"), Container: ctr,
		User: names.Name(nobody), NSPID: 1, Cgroup: group, Pod: pod, Unit: "gputap-test-" +
			strconv.Itoa(os.Getpid()) + ".service", Job: "pod:" + pod,
	}
	if found[0] != want || want.User == "" || want.Start == 0 {
		t.Errorf("got\n%+v, want\n%+v", found[0], want)
	}
}
