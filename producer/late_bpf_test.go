//go:build bpf

package producer

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestLateProcess: for a program that ran before gputap, the kernels have the names from its memory, and its GPU is the
// only one that it has open. Both are marked as inferred.
func TestLateProcess(t *testing.T) {
	producertest.RequireBPF(t)
	const minor = 4217 // no GPU has it
	path := fmt.Sprintf("/dev/nvidia%d", minor)
	device, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer device.Close()
	other, err := os.Create(fmt.Sprintf("/dev/nvidia%d", minor+1))
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(other.Name())
	defer other.Close()
	host := []process.Card{
		{GPU: schema.GPU{UUID: stubCards[0], Bus: "0000:3b:00.0"}, Minor: minor},
		{GPU: schema.GPU{UUID: stubCards[1], Bus: "0000:86:00.0"}, Minor: minor + 1},
	}
	first, second := schema.GPU{UUID: stubCards[0], Ordinal: 1, Inferred: true}, schema.GPU{UUID: stubCards[1],
		Inferred: true}
	tests := []struct {
		name  string
		files []*os.File
		gpu   schema.GPU // of calls in the context that was not seen being made
	}{
		{"one GPU open", []*os.File{device}, first},
		{"two GPUs open", []*os.File{device, other}, schema.GPU{}},
		{"none open", nil, schema.GPU{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(producertest.Built(t, "workload"), "late-kernels", "--steps")
			cmd.ExtraFiles = tt.files
			cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=1,0")
			s := producertest.StartSteps(t, cmd)
			s.Await("attached")
			w := prepareFor(t, "memory", "launch")
			w.known.Cards = host
			w.run(t)
			s.Continue()
			s.Await("live")
			all := w.end(t) // while the process is there to be looked at
			pid := s.Finish()
			if p := all[pid]; p == nil || !p.Late {
				t.Fatalf("published %+v, want a late process", p)
			}
			messages := stored(t, w.js)
			launches := map[schema.Func]int{}
			each(t, messages, schema.KindLaunch, func(b *schema.Batch) {
				for i := range b.Events {
					e := b.Launch(i)
					f := b.Funcs[b.Shapes[e.Shape].Func]
					f.Handle = 0
					launches[f]++
					checkGPU(t, b, e.GPU, tt.gpu)
				}
			})
			want := map[schema.Func]int{{Name: "_Z9vectorAddPKfS0_Pfi", Read: true}: 3,
				{Name: "_Z9vectorMulPKfS0_Pfi", Read: true}: 4}
			if !maps.Equal(launches, want) {
				t.Errorf("launches %v, want %v", launches, want)
			}
			each(t, messages, schema.KindMemory, func(b *schema.Batch) {
				for i := range b.Events {
					switch e := b.Memory(i); {
					case b.Processes[b.Threads[e.Thread].Process].PID != pid:
					case e.Bytes == 3<<20:
						checkGPU(t, b, e.GPU, tt.gpu)
					case e.Bytes == 5<<20:
						checkGPU(t, b, e.GPU, second)
					}
				}
			})
		})
	}
}

func checkGPU(t *testing.T, b *schema.Batch, index uint32, want schema.GPU) {
	t.Helper()
	var got schema.GPU
	if index != 0 {
		got = b.GPUs[index-1]
	}
	if got != want {
		t.Errorf("on GPU %+v, want %+v", got, want)
	}
}

// TestCoverage: a heartbeat lists the functions that a program got from the driver and gputap does not see, with the
// reason.
func TestCoverage(t *testing.T) {
	hidden := []string{"cuLaunchStubElsewhere (outside the driver)", "cuMemStubHidden (not exported)"}
	tests := []struct {
		features []string
		outside  []string
	}{
		{[]string{"memory", "launch", "copy", "sync"}, append([]string{"cuMemcpy3DBatchAsync_v2"}, hidden...)},
		{[]string{"memory"}, append([]string{"cuMemcpy3DBatchAsync_v2"},
			hidden...)}, // launches are not wanted: nothing is wrong
	}
	for _, tt := range tests {
		var last schema.Coverage
		var pid uint32
		each(t, waiting(t, tt.features, func(p uint32) { pid = p }, "asks"), schema.KindHost, func(b *schema.Batch) {
			for _, c := range b.Coverage {
				if b.Processes[c.Process].PID == pid {
					last = c
				}
			}
		})
		slices.Sort(last.Outside)
		slices.Sort(tt.outside)
		if last.Asked != 7 || last.ExportTables != 2 || !slices.Equal(last.Outside, tt.outside) {
			t.Errorf("with %v: %+v, want 7 asked for, 2 tables, and %v", tt.features, last, tt.outside)
		}
	}
}

// TestLaunchesKeepTheirGPU: after a context handle was reused on another GPU, launches from before keep theirs.
func TestLaunchesKeepTheirGPU(t *testing.T) {
	got := map[string]int{}
	var pid uint32
	each(t, waiting(t, []string{"launch"}, func(p uint32) { pid = p }, "again-elsewhere"), schema.KindLaunch,
		func(b *schema.Batch) {
			for i := range b.Events {
				e := b.Launch(i)
				if b.Processes[b.Threads[e.Thread].Process].PID != pid || e.GPU == 0 {
					continue
				}
				got[fmt.Sprintf("%s on %d", b.Funcs[b.Shapes[e.Shape].Func].Name, b.GPUs[e.GPU-1].Ordinal)]++
			}
		})
	want := map[string]int{"_Z9vectorAddPKfS0_Pfi on 0": 200, "_Z9vectorMulPKfS0_Pfi on 1": 200}
	if !maps.Equal(got, want) {
		t.Errorf("launches %v, want %v", got, want)
	}
}

// TestOlderProcessesAreListed: a memory batch lists the processes that ran before gputap and have a driver mapped.
func TestOlderProcessesAreListed(t *testing.T) {
	producertest.RequireBPF(t)
	start := func() *producertest.Steps {
		s := producertest.StartSteps(t, exec.Command(producertest.Built(t, "workload"), "late-kernels", "--steps"))
		s.Await("attached")
		return s
	}
	older := start()
	w := prepareFor(t, "memory")
	later := start()
	w.run(t)
	producertest.Eventually(t, "a memory batch is acked", func() bool {
		return w.metrics.batches[schema.KindMemory].Load() > 0
	})
	w.end(t)
	_ = later.Process.Kill()
	_ = later.Wait()
	older.Finish()
	var listed []uint64
	each(t, stored(t, w.js), schema.KindMemory, func(b *schema.Batch) {
		if b.Older != nil && listed == nil {
			listed = b.Older
		}
	})
	if !slices.Contains(listed, uint64(older.Process.Pid)) || slices.Contains(listed, uint64(later.Process.Pid)) {
		t.Errorf("listed %v, want %d and not %d", listed, older.Process.Pid, later.Process.Pid)
	}
}
