//go:build bpf

package producer

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestLateProcess: of a program that ran before, kernels are named by what its memory says, and its GPU is the one
// whose device file it has open; both are told to be no more than that.
func TestLateProcess(t *testing.T) {
	requireBPF(t)
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
	host := []card{
		{GPU: schema.GPU{UUID: stubCards[0], Bus: "0000:3b:00.0"}, minor: minor},
		{GPU: schema.GPU{UUID: stubCards[1], Bus: "0000:86:00.0"}, minor: minor + 1},
	}
	first, second := schema.GPU{UUID: stubCards[0], Ordinal: 1, Inferred: true}, schema.GPU{UUID: stubCards[1], Inferred: true}
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
			cmd := exec.Command(stub(t, "workload"), "late-kernels", "--steps")
			cmd.ExtraFiles = tt.files
			cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=1,0")
			s := startSteps(t, cmd)
			s.await("attached")
			w := prepareFor(t, "memory", "launch")
			w.reader.cards = host
			w.run(t)
			s.goOn()
			s.await("live")
			all := w.end(t) // while the process is there to be looked at
			pid := s.finish()
			if p := all[pid]; p == nil || !p.Late {
				t.Fatalf("told %+v, want a late process", p)
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
			want := map[schema.Func]int{{Name: "_Z9vectorAddPKfS0_Pfi", Read: true}: 3, {Name: "_Z9vectorMulPKfS0_Pfi", Read: true}: 4}
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

// TestCoverage: what a program got from the driver and gputap does not see, by the reason.
func TestCoverage(t *testing.T) {
	hidden := []string{"cuLaunchStubElsewhere (outside the driver)", "cuMemStubHidden (not exported)"}
	tests := []struct {
		features []string
		outside  []string
	}{
		{[]string{"memory", "launch", "copy", "sync"}, append([]string{"cuMemcpy3DBatchAsync_v2"}, hidden...)},
		{[]string{"memory"}, append([]string{"cuMemcpy3DBatchAsync_v2"}, hidden...)}, // launches are not wanted: nothing is wrong
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

// TestContextHandleComesAgain: launches are read after what was told later, and are on the GPU of their own time.
func TestContextHandleComesAgain(t *testing.T) {
	got := map[string]int{}
	var pid uint32
	each(t, waiting(t, []string{"launch"}, func(p uint32) { pid = p }, "again-elsewhere"), schema.KindLaunch, func(b *schema.Batch) {
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

// TestOlder: what ran before and is still there is said among the memory events, and again when one of it is gone: of a
// process that makes no call nobody tells the end.
func TestOlder(t *testing.T) {
	stays, goes := startSteps(t, exec.Command(stub(t, "workload"), "late-kernels", "--steps")), startSteps(t, exec.Command(stub(t, "workload"), "late-kernels", "--steps"))
	stays.await("attached")
	goes.await("attached")
	w := prepareFor(t, "memory")
	defer w.Close()
	later := startSteps(t, exec.Command(stub(t, "workload"), "late-kernels", "--steps"))
	later.await("attached")
	defer func() { _ = later.Process.Kill() }()
	said := func() (all [][]uint64) {
		decoder := schema.NewDecoder()
		for _, e := range w.spool.queues[schema.KindMemory] {
			var b schema.Batch
			if err := decoder.Decode(e.data, &b); err != nil {
				t.Fatal(err)
			}
			for i := range b.Events {
				if m := b.Memory(i); b.Calls[m.Call].Op == schema.OpExit && b.Processes[b.Threads[m.Thread].Process].PID == uint32(goes.Process.Pid) {
					t.Error("its end is told")
				}
			}
			if b.Older != nil {
				all = append(all, b.Older)
			}
		}
		if o := w.batches.open[schema.KindMemory]; len(all) > 0 && o.Older != nil { // it waits for the ack of the one before
			all = append(all, o.Older)
		}
		return all
	}
	check := func(want map[*stepped]bool) {
		t.Helper()
		all := said()
		for s, there := range want {
			if slices.Contains(all[len(all)-1], uint64(s.Process.Pid)) != there {
				t.Errorf("%v are said to be there; of %d that is to be %t", all[len(all)-1], s.Process.Pid, there)
			}
		}
	}
	w.steps(t, func() bool { return len(said()) > 0 })
	check(map[*stepped]bool{stays: true, goes: true, later: false})
	before := len(said())
	_ = goes.Process.Kill()
	_ = goes.Wait()
	w.steps(t, func() bool {
		w.probes.side.catchUp()
		w.probes.step(bootTime() + leaveGrace)
		return len(said()) > before
	})
	check(map[*stepped]bool{stays: true, goes: false, later: false})
	stays.finish()
}
