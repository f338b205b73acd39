//go:build bpf

package producer

import (
	"context"
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// watching is a producer that never scans again: side-band records alone report mappings.
type watching struct {
	*Producer
	js   jetstream.JetStream
	stop context.CancelFunc
	done chan error
}

func watch(t testing.TB) *watching {
	w := prepare(t)
	w.run(t)
	return w
}

// prepare attaches the host's libraries, the stub if none are named, and does not read yet.
func prepare(t testing.TB, libraries ...string) *watching {
	if libraries == nil {
		libraries = []string{producertest.Built(t, "stub/libcuda.so.1")}
	}
	return prepareOn(t, libraries, "memory")
}

// prepareFor attaches the stub for some features.
func prepareFor(t testing.TB, features ...string) *watching {
	return prepareOn(t, []string{producertest.Built(t, "stub/libcuda.so.1")}, features...)
}

func prepareOn(t testing.TB, libraries []string, features ...string) *watching {
	producertest.RequireBPF(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.Libraries = "test", features, libraries
	cfg.ScanInterval = time.Hour
	w := &watching{js: newBus(t), done: make(chan error, 1)}
	var err error
	if w.Producer, err = New(cfg, "test", w.js, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watching) run(t testing.TB) {
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	go func() { w.done <- w.Run(ctx) }()
}

// step reads the side-band and the rings once.
func (w *watching) step(t testing.TB) {
	w.probes.CatchUp()
	w.Producer.step()
}

// published counts the published events of one process.
type published struct {
	schema.Process
	allocs, frees, exits int
	onGPU                bool // every allocation has a GPU: the first calls were seen
}

func (w *watching) end(t testing.TB) map[uint32]*published {
	w.stop()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	return publishedOf(t, stored(t, w.js))
}

func publishedOf(t testing.TB, messages [][]byte) map[uint32]*published {
	all := map[uint32]*published{}
	decoder := schema.NewDecoder()
	var b schema.Batch
	for _, data := range messages {
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		if b.Kind != schema.KindMemory {
			continue
		}
		for i := range b.Events {
			e := b.Memory(i)
			q := b.Processes[b.Threads[e.Thread].Process]
			if all[q.PID] == nil {
				all[q.PID] = &published{onGPU: true}
			}
			p := all[q.PID]
			p.Process = q
			switch b.Calls[e.Call].Op {
			case schema.OpAlloc:
				p.allocs++
				p.onGPU = p.onGPU && e.GPU != 0
			case schema.OpFree:
				p.frees++
			case schema.OpExit:
				p.exits++
			}
		}
	}
	return all
}

func checkPublished(t *testing.T, p *published, late bool) {
	t.Helper()
	if p == nil {
		t.Fatal("nothing was published about the process")
	}
	if p.Late != late || p.allocs != 1 || p.frees != 1 || p.exits != 1 || !p.onGPU {
		t.Errorf("published %+v, want late %v, 1 allocation, 1 free, 1 exit, on a known GPU", *p, late)
	}
}

// TestShortProgramsAreComplete: programs of the host's library that call at once are seen from their first call.
func TestShortProgramsAreComplete(t *testing.T) {
	w := watch(t)
	var pids []uint32
	for range 100 {
		cmd := exec.Command(producertest.Built(t, "workload"), "later")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, uint32(cmd.Process.Pid))
	}
	all := w.end(t)
	for _, pid := range pids {
		checkPublished(t, all[pid], false)
	}
}

// TestOlderProcessIsLateUntilExec: the new image made no call before.
func TestOlderProcessIsLateUntilExec(t *testing.T) {
	producertest.RequireBPF(t)
	shell := producertest.StartSteps(t, exec.Command("/bin/sh", "-c",
		`echo step ready; read x; exec "$0" later --steps`, producertest.Built(t, "workload")))
	shell.Await("ready")
	w := watch(t)
	shell.Continue()
	shell.Await("mapped")
	pid := shell.Finish()
	checkPublished(t, w.end(t)[pid], false)
}

func TestComm(t *testing.T) {
	w := prepare(t)
	s := producertest.StartSteps(t, exec.Command(producertest.Built(t, "workload"), "renamed", "--steps"))
	s.Await("before")
	w.step(t)
	s.Continue()
	s.Await("named")
	w.step(t)
	s.Finish()
	w.run(t)
	w.end(t)
	type names struct{ process, thread string }
	got := map[uint64]names{}
	each(t, stored(t, w.js), schema.KindMemory, func(b *schema.Batch) {
		for i := range b.Events {
			if e := b.Memory(i); b.Calls[e.Call].Op == schema.OpAlloc {
				thread := b.Threads[e.Thread]
				got[e.Bytes>>20] = names{b.Processes[thread.Process].Comm, thread.Comm}
			}
		}
	})
	want := map[uint64]names{
		1: {"workload", "workload"}, 3: {"workload", "before-t"}, 2: {"after-p", "after-p"}, 4: {"after-p", "after-t"},
	}
	for mib, n := range want {
		if got[mib] != n {
			t.Errorf("block of %d MiB: %v, want %v", mib, got[mib], n)
		}
	}
}
