//go:build bpf

package producer

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

func bpfSpec() (*ebpf.CollectionSpec, error) { return bpf.LoadTap() }

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// small is a producer that reads when the test calls its steps. The CPUs share one small bulk ring. The control ring
// has 64 KiB, room for the first records of a program, where a name alone takes half a page.
func small(t *testing.T) *Producer {
	return smallFor(t, config.DefaultProducer().Features, "stub/libcuda.so.1")
}

func smallFor(t *testing.T, features []string, libraries ...string) *Producer {
	producertest.RequireBPF(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.BatchAge = "test", features, time.Millisecond
	for _, library := range libraries {
		cfg.Libraries = append(cfg.Libraries, producertest.Built(t, library))
	}
	cfg.RingBytes = 256 << 10 // less than Validate accepts
	p, err := New(cfg, "test", newBus(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func (p *Producer) steps(t *testing.T, until func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !until(); {
		if time.Now().After(end) {
			t.Fatal("it never comes")
		}
		p.step()
	}
}

// callsMade returns how often a function was called, by the stub's own counts of every process image.
func callsMade(t *testing.T, dir, symbol string) (n uint64) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(list) == 0 {
		t.Fatal("no truth", err)
	}
	for _, path := range list {
		truth, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const first, entry, entries = 64, 80, 320 // see stub.h
		for i := range entries {
			call := truth[first+i*entry:]
			if unix.ByteSliceToString(call[:48]) == symbol {
				n += binary.LittleEndian.Uint64(call[48:]) + binary.LittleEndian.Uint64(call[56:])
			}
		}
	}
	return n
}

// TestRingFull: while nobody reads, a full ring loses records and does not delay the program. Seen and lost events
// together are all calls that the program made. Afterwards nothing more is lost.
func TestRingFull(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		symbols []string
		ops     []schema.Op
		cause   schema.Loss
	}{
		{"control", []string{"rate"}, []string{"cuMemAlloc_v2", "cuMemFree_v2"},
			[]schema.Op{schema.OpAlloc, schema.OpFree}, schema.LossControlRing},
		{"bulk", []string{"rate", "--launches"}, []string{"cuLaunchKernel"}, []schema.Op{schema.OpLaunch},
			schema.LossBulkRing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := small(t)
			truths := t.TempDir()
			t.Setenv("GPUTAP_STUB_TRUTH", truths)
			s := producertest.StartSteps(t, exec.Command(producertest.Built(t, "workload"),
				append(tt.args, "--rate", "100000", "--seconds", "0.5", "--steps")...))
			// both threads are announced before its first step
			p.steps(t, func() bool { return p.known.Threads() == 2 })
			s.Await("ready")
			p.steps(t, func() bool { return p.round() == 0 })
			if lost := p.lost(); lost != ([schema.NumLosses]uint64{}) {
				t.Fatalf("lost at its beginning: %v", lost)
			}
			began := time.Now()
			s.Continue()
			_, err := s.Out.ReadString('\n') // calls and seconds
			s.Await("done")
			if took := time.Since(began); err != nil || took > 5*time.Second {
				t.Errorf("half a second of calls took %v (%v)", took, err)
			}
			check := func() {
				t.Helper()
				p.steps(t, func() bool { return p.round() == 0 })
				var made, seen uint64
				for _, symbol := range tt.symbols {
					made += callsMade(t, truths, symbol)
				}
				for _, op := range tt.ops {
					seen += p.metrics.events[op].Load()
				}
				lost := p.lost()
				if seen+lost[tt.cause] != made || lost[tt.cause] == 0 || seen == 0 {
					t.Errorf("%d seen and %d lost of %d calls", seen, lost[tt.cause], made)
				}
				lost[tt.cause] = 0
				if lost != ([schema.NumLosses]uint64{}) {
					t.Errorf("lost besides: %v", lost)
				}
			}
			check()
			exits := p.metrics.events[schema.OpExit].Load()
			s.Finish()
			p.steps(t, func() bool { return p.metrics.events[schema.OpExit].Load() == exits+1 })
			next := producertest.StartSteps(t, exec.Command(producertest.Built(t, "workload"),
				append(tt.args, "--rate", "1000", "--seconds", "0.1", "--steps")...))
			next.Await("ready")
			next.Continue()
			go func() { _, _ = next.Out.ReadString('\n'); next.CloseInput() }()
			p.steps(t, func() bool { return p.metrics.events[schema.OpExit].Load() == exits+2 })
			next.Finish()
			check()
		})
	}
}

// TestTensorRingFull: the same for the blocks of PyTorch's allocator, whose log is the truth.
func TestTensorRingFull(t *testing.T) {
	p := smallFor(t, []string{"torch"}, "stub/libcuda.so.1", "stub/libc10.so")
	s := startTensors(t, producertest.Built(t, "workload"), "tensors", "--threads", "2", "--count", "2000")
	s.Await("mapped")
	p.steps(t, func() bool { return p.round() == 0 })
	s.Continue()
	made := 0
	for _, step := range []string{"live", "freed"} {
		blocks := reportsBefore(t, s, step)
		made += len(blocks[0]) + len(blocks[1])
		p.steps(t, func() bool { return p.round() == 0 })
		s.Continue()
	}
	s.Finish()
	seen := p.metrics.events[schema.OpBlockAlloc].Load() + p.metrics.events[schema.OpBlockFree].Load()
	lost := p.lost()
	if seen+lost[schema.LossTensorRing] != uint64(made) || lost[schema.LossTensorRing] == 0 || seen == 0 {
		t.Errorf("%d seen and %d lost of %d blocks", seen, lost[schema.LossTensorRing], made)
	}
	lost[schema.LossTensorRing] = 0
	if lost != ([schema.NumLosses]uint64{}) {
		t.Errorf("lost besides: %v", lost)
	}
}

// TestLostExitIsFound: the ring was full when a process ended. The producer finds the process gone and publishes its
// exit.
func TestLostExitIsFound(t *testing.T) {
	p := small(t)
	s := producertest.StartSteps(t, exec.Command(producertest.Built(t, "workload"), "rate", "--rate", "10000",
		"--seconds", "0.1", "--steps"))
	p.steps(t, func() bool { return p.known.Threads() == 2 })
	s.Await("ready")
	s.Continue()
	_, _ = s.Out.ReadString('\n')
	s.Await("done")
	s.Finish() // with a full ring
	p.steps(t, func() bool { return p.round() == 0 })
	if p.known.Len() != 1 || p.metrics.events[schema.OpExit].Load() != 0 {
		t.Fatal("its end was not lost: the test shows nothing")
	}
	for range 3 {
		p.checkAt = 0
		p.steps(t, func() bool { return p.checkAt != 0 })
	}
	if n := p.metrics.events[schema.OpExit].Load(); n != 1 {
		t.Errorf("%d exits were published", n)
	}
}

// TestProcessMapFull: a process without room in the BPF map is counted as a lost state. Its calls are seen all the
// same, and the producer finds its end, which Linux does not report.
func TestProcessMapFull(t *testing.T) {
	w := prepare(t)
	processes := mapNamed(t, "processes")
	keys := make([]uint32, processes.MaxEntries())
	for i := range keys {
		keys[i] = 1<<30 + uint32(i)
	}
	values := make([]byte, len(keys)*int(processes.ValueSize()))
	if _, err := processes.BatchUpdate(keys, states(values, int(processes.ValueSize())),
		nil); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		t.Fatal(err)
	}
	cmd := exec.Command(producertest.Built(t, "workload"), "later")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	w.step(t)
	if lost := w.lost(); lost[schema.LossState] != 1 {
		t.Errorf("lost %v, want one state", lost)
	}
	for range 3 {
		w.checkAt = 0
		w.step(t)
	}
	w.run(t)
	checkPublished(t, w.end(t)[uint32(cmd.Process.Pid)], false)
}

// states cuts bytes into the values of a map.
func states(raw []byte, size int) [][24]byte {
	if size != 24 {
		panic("struct process_state has another size")
	}
	return make([][24]byte, len(raw)/size)
}

// TestCaptureMapsFull: more CUDA events in captures, and more captures of killed processes, than Linux remembers do not
// change how launches of other processes are counted.
func TestCaptureMapsFull(t *testing.T) {
	js := capture(t, all, "many-captured")
	launched, recorded := 0, 0
	each(t, js, schema.KindLaunch, func(b *schema.Batch) {
		for i := range b.Events {
			switch e := b.Launch(i); b.Calls[b.Shapes[e.Shape].Call].Op {
			case schema.OpLaunch:
				launched++
			case schema.OpRecord:
				recorded++
			}
		}
	})
	if launched != 1000 || recorded != 1000 {
		t.Errorf("%d launches and %d recorded, want 1000 of each", launched, recorded)
	}
}
