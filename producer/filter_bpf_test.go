//go:build bpf

package producer

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// named is the workload under another name.
func named(t *testing.T, name string, args ...string) *exec.Cmd {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // other users run it too
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, name)
	if err := os.Symlink(producertest.Built(t, "workload"), program); err != nil {
		t.Fatal(err)
	}
	return exec.Command(program, args...)
}

// held is a workload that waits, as a shell, for the returned function: it has a pid before its first call.
func held(t *testing.T) (cmd *exec.Cmd, run func()) {
	cmd = exec.Command("/bin/sh", "-c", `read go; exec "$0" train`, producertest.Built(t, "workload"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() {
		_, _ = io.WriteString(stdin, "\n")
		if err := cmd.Wait(); err != nil {
			t.Errorf("workload: %v", err)
		}
	}
}

func run(t *testing.T, commands ...*exec.Cmd) {
	t.Helper()
	for _, cmd := range commands {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("workload: %v: %s", err, out)
		}
	}
}

// callers returns the pids in the batches of all kinds, heartbeats included.
func callers(t *testing.T, messages [][]byte) []uint32 {
	var pids []uint32
	for kind := schema.KindMemory; kind <= schema.KindHost; kind++ {
		for _, p := range processesIn(t, messages, kind) {
			if !slices.Contains(pids, p.PID) {
				pids = append(pids, p.PID)
			}
		}
	}
	return pids
}

// lines receives the log of a test, line by line. It drops lines while nobody reads.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func (l lines) await(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("never logged: %s", text)
		}
	}
}

func TestFilters(t *testing.T) {
	producertest.RequireBPF(t)
	const nobody = 65534
	other := strings.Repeat("f", 64)
	wanted, dir := producertest.NewCgroup(t, "cri-containerd-"+ctr+".scope")
	_, inside := producertest.NewCgroup(t, "cri-containerd-"+ctr+".scope", "inner")
	_, beside := producertest.NewCgroup(t, "kubepods-pod"+podSlice+".slice", "cri-containerd-"+other+".scope")
	as := func(uid uint32, cmd *exec.Cmd) *exec.Cmd {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return cmd
	}
	train := func() *exec.Cmd { return exec.Command(producertest.Built(t, "workload"), "train") }
	for _, tt := range []struct {
		name   string
		filter config.Filter
		pass   *exec.Cmd // nil: nothing passes
		over   *exec.Cmd
	}{
		{"name", config.Filter{Comm: []string{"nobody", "python3"}}, named(t, "python3", "train"),
			named(t, "python", "train")},
		{"long name", config.Filter{Comm: []string{"a-name-of-many-letters"}},
			named(t, "a-name-of-many-letters", "train"), train()},
		{"uid", config.Filter{UID: []string{"65534"}}, as(nobody, train()), train()},
		{"user", config.Filter{UID: []string{"root"}}, train(), as(nobody, train())},
		{"name and user", config.Filter{Comm: []string{"workload"}, UID: []string{"nobody"}}, as(nobody, train()),
			as(nobody, named(t, "python", "train"))},
		{"user but not name", config.Filter{Comm: []string{"python"}, UID: []string{"nobody"}}, nil,
			as(nobody, train())},
		{"container", config.Filter{Container: []string{ctr}}, in(t, train(), dir), in(t, train(), beside)},
		{"container by its first digits", config.Filter{Container: []string{strings.ToUpper(ctr[:12])}},
			in(t, train(), dir), in(t, train(), beside)},
		{"group inside a container", config.Filter{Container: []string{ctr}}, in(t, train(), inside), train()},
		{"pod", config.Filter{Container: []string{pod}}, in(t, train(), beside), in(t, train(), dir)},
		{"path", config.Filter{Cgroup: []string{wanted}}, in(t, train(), inside), in(t, train(), beside)},
		{"directory", config.Filter{Cgroup: []string{"inner"}}, in(t, train(), inside), in(t, train(), dir)},
		{"container and directory", config.Filter{Container: []string{ctr}, Cgroup: []string{"inner"}},
			in(t, train(), inside), in(t, train(), dir)},
		{"directory but not container", config.Filter{Container: []string{pod}, Cgroup: []string{"inner"}}, nil,
			in(t, train(), inside)},
		{"root of all groups", config.Filter{Cgroup: []string{"/"}, Comm: []string{"workload"}}, train(),
			in(t, named(t, "python", "train"), dir)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.DefaultProducer()
			cfg.Filter = tt.filter
			var want []uint32
			messages := watchWith(t, cfg, slog.New(slog.DiscardHandler), func(p *Producer) {
				run(t, tt.over)
				if tt.pass != nil {
					run(t, tt.pass)
					want = append(want, uint32(tt.pass.Process.Pid))
				}
				if n := p.metrics.malformed.Load(); n != 0 {
					t.Errorf("%d malformed records", n)
				}
			})
			if got := callers(t, messages); !slices.Equal(got, want) {
				t.Errorf("processes %v came, want %v", got, want)
			}
		})
	}
}

func TestFilterByPID(t *testing.T) {
	producertest.RequireBPF(t)
	chosen, runChosen := held(t)
	_, runOther := held(t)
	cfg := config.DefaultProducer()
	cfg.Filter.PID = []string{fmt.Sprint(chosen.Process.Pid)}
	messages := watchWith(t, cfg, slog.New(slog.DiscardHandler), func(*Producer) {
		runOther()
		runChosen()
	})
	if got, want := callers(t, messages), []uint32{uint32(chosen.Process.Pid)}; !slices.Equal(got, want) {
		t.Errorf("processes %v came, want %v", got, want)
	}
}

// TestFilterIsAppliedAgainAfterExec: a new image that passes is seen.
func TestFilterIsAppliedAgainAfterExec(t *testing.T) {
	cfg := config.DefaultProducer()
	cfg.Filter.Comm = []string{"exe"} // the workload becomes /proc/self/exe
	cmd := exec.Command(producertest.Built(t, "workload"), "hard-exec")
	messages := watchWith(t, cfg, slog.New(slog.DiscardHandler), func(*Producer) { run(t, cmd) })
	var bytes []uint64
	ends := 0
	each(t, messages, schema.KindMemory, func(b *schema.Batch) {
		for i := range b.Events {
			e := b.Memory(i)
			switch b.Calls[e.Call].Op {
			case schema.OpAlloc:
				bytes = append(bytes, e.Bytes)
			case schema.OpExec, schema.OpExit:
				ends++
			}
		}
		for _, p := range b.Processes {
			if p.Comm != "exe" {
				t.Errorf("process %+v", p)
			}
		}
	})
	if want := []uint64{5 << 20}; !slices.Equal(bytes, want) || ends != 1 {
		t.Errorf("allocations of %d bytes and %d ends, want %d and 1", bytes, ends, want)
	}
}

// TestFilterSurvivesARename: a process passes as a whole, also the threads that begin under another name.
func TestFilterSurvivesARename(t *testing.T) {
	cfg := config.DefaultProducer()
	cfg.Filter.Comm = []string{"workload"}
	cmd := exec.Command(producertest.Built(t, "workload"), "hard-rename")
	messages := watchWith(t, cfg, slog.New(slog.DiscardHandler), func(*Producer) { run(t, cmd) })
	events := map[schema.Op]int{}
	each(t, messages, schema.KindMemory, func(b *schema.Batch) {
		for i := range b.Events {
			events[b.Calls[b.Memory(i).Call].Op]++
		}
	})
	if events[schema.OpAlloc] != 2 || events[schema.OpFree] != 1 {
		t.Errorf("got %v, want 2 allocations and 1 free", events)
	}
}

// TestFilterOfLaterGroups: a container that starts while gputap runs is seen from its first call, whether Linux reports
// its control group or gputap finds it by polling.
func TestFilterOfLaterGroups(t *testing.T) {
	for _, polling := range []bool{false, true} {
		t.Run(fmt.Sprintf("polling=%v", polling), func(t *testing.T) {
			producertest.RequireBPF(t)
			cfg := config.DefaultProducer()
			cfg.Filter.Container = []string{ctr}
			log := make(lines, 1000)
			var want []uint32
			messages := watchWith(t, cfg, slog.New(slog.NewTextHandler(log,
				&slog.HandlerOptions{Level: slog.LevelDebug})), func(p *Producer) {
				if polling {
					p.cgroups.Close() // as if Linux had no such tracepoint
				}
				group, dir := producertest.NewCgroup(t, "docker-"+ctr+".scope")
				log.await(t, group)
				cmd := in(t, exec.Command(producertest.Built(t, "workload"), "every"), dir)
				run(t, cmd)
				want = append(want, uint32(cmd.Process.Pid))
			})
			if got := callers(t, messages); !slices.Equal(got, want) {
				t.Errorf("processes %v came, want %v", got, want)
			}
		})
	}
}
