package snapshot_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/tensor"
	"github.com/gputap/gputap/schema"
)

// testHalves cuts batches in two between any two events. A producer closes a batch by its size and age, so the report
// must be the same.
func (s suite) testHalves(t *testing.T, traffics uint64) {
	t.Parallel()
	for seed := range traffics {
		steps := s.traffic(t, seed, 120)
		whole, halves := s.new(), s.new()
		consumertest.Take(t, whole, cutBatches(t, seed, true, steps)...)
		consumertest.Take(t, halves, cutBatches(t, seed, false, steps)...)
		got, want := withoutSeq(text(t, s.report(halves))), withoutSeq(text(t, s.report(whole)))
		if !bytes.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			from := max(0, n-300)
			t.Fatalf("traffic %d: of halves the fold reports\n%s\nwant\n%s", seed, got[from:min(n+300, len(got))],
				want[from:min(n+300, len(want))])
		}
	}
}

var seqs = regexp.MustCompile(`"(seq|seq_from|seq_to|id)": "?\w+"?`)

func withoutSeq(text []byte) []byte { return seqs.ReplaceAll(text, nil) }

// cutBatches cuts most batches with events in two.
func cutBatches(tb testing.TB, seed uint64, whole bool, steps []consumertest.Step) (cut []consumertest.Step) {
	rng := rand.New(rand.NewPCG(seed, 11))
	for _, step := range steps {
		if step.Lost > 0 {
			cut = append(cut, step)
			continue
		}
		b := consumertest.Decode(tb, step.Message)
		if b.Kind == schema.KindHost || b.Kind == schema.KindRank || b.Events == 0 {
			cut = append(cut, step)
			continue
		}
		at := b.Events
		if !whole {
			at = 1 + rng.IntN(b.Events)
		}
		for _, part := range [][2]int{{0, at}, {at, b.Events}} {
			h := b.Header
			h.Seq = 2*b.Seq + uint64(part[0]/at)
			out := partOf(b, part[0], part[1])
			if out.Events() == 0 {
				continue
			}
			cut = append(cut, consumertest.Step{Message: slices.Clone(out.Encode(&h))})
		}
	}
	return cut
}

// calm gives each process a PID and a name of its own, as partOf gives each thread a name. PIDs that are used again,
// and names that change, count from the batch on that shows it.
func calm(p schema.Process) schema.Process {
	p.PID = p.PID*10 + uint32(p.Start)
	p.Comm = fmt.Sprint("p", p.PID)
	return p
}

// partOf returns the events of a batch from one to before another.
func partOf(b *schema.Batch, from, to int) *schema.Builder {
	out := schema.NewBuilder(b.Kind)
	thread := func(i uint32) uint32 {
		of := b.Threads[i]
		of.Process = out.Process(calm(b.Processes[of.Process]))
		of.Comm = fmt.Sprint("t", of.TID)
		return out.Thread(of)
	}
	gpu := func(i uint32) uint32 {
		if i == 0 {
			return 0
		}
		return out.GPU(b.GPUs[i-1])
	}
	call := func(i uint32) uint32 { return out.Call(b.Calls[i]) }
	for i := from; i < to; i++ {
		switch b.Kind {
		case schema.KindMemory:
			e := b.Memory(i)
			e.Thread, e.Call, e.GPU, e.Stack = thread(e.Thread), call(e.Call), gpu(e.GPU), 0
			if e.Context > 0 {
				c := b.Contexts[e.Context-1]
				c.GPU = gpu(c.GPU)
				e.Context = out.Context(c)
			}
			out.AddMemory(&e)
		case schema.KindLaunch:
			e := b.Launch(i)
			shape := b.Shapes[e.Shape]
			for _, g := range b.Graphs {
				if g.Func == shape.Func {
					out.Graph(graphOf(b, out, g))
				}
			}
			shape.Call, shape.Func = call(shape.Call), out.Func(b.Funcs[shape.Func])
			e.Thread, e.GPU, e.Shape = thread(e.Thread), gpu(e.GPU), out.Shape(shape)
			e.CUDAStream = out.CUDAStream(b.CUDAStreams[e.CUDAStream])
			out.AddLaunch(&e)
		case schema.KindCopy:
			e := b.Copy(i)
			e.Thread, e.Call, e.GPU = thread(e.Thread), call(e.Call), gpu(e.GPU)
			e.CUDAStream = out.CUDAStream(b.CUDAStreams[e.CUDAStream])
			out.AddCopy(&e)
		case schema.KindSync:
			e := b.Sync(i)
			e.Thread, e.Call, e.GPU = thread(e.Thread), call(e.Call), gpu(e.GPU)
			e.CUDAStream = out.CUDAStream(b.CUDAStreams[e.CUDAStream])
			out.AddSync(&e)
		case schema.KindTensor:
			e := b.Tensor(i)
			e.Thread, e.Call, e.GPU = thread(e.Thread), call(e.Call), gpu(e.GPU)
			out.AddTensor(&e)
		}
	}
	return out
}

func graphOf(b *schema.Batch, out *schema.Builder, g schema.Graph) schema.Graph {
	nodes := slices.Clone(g.Nodes)
	for i := range nodes {
		nodes[i].Func = out.Func(b.Funcs[nodes[i].Func])
	}
	return schema.Graph{Func: out.Func(b.Funcs[g.Func]), Partial: g.Partial, Nodes: nodes}
}

// TestHalves uses folds that forget no process: others forget once a minute, at the end of a batch. In launch a process
// lives to the end of a batch, so its reports depend on the batches.
func TestHalves(t *testing.T) {
	forever := map[string]func() fold{
		"leak":      func() fold { return leak.New(leak.Config{Window: 10 * time.Second}) },
		"bandwidth": func() fold { return bandwidth.New(bandwidth.Config{}) },
		"tensor":    func() fold { return tensor.New(tensor.Config{Window: 10 * time.Second}) },
	}
	for _, s := range suites {
		if of := forever[s.name]; of != nil {
			s.new = of
		}
		if s.name == "tensor" {
			s.report = tensorsInOrder
		}
		if s.name != "launch" {
			t.Run(s.name, func(t *testing.T) { s.testHalves(t, 2) })
		}
	}
}

// tensorsInOrder reports the tensors of processes by identity, without their evidence. A memory batch with an end makes
// all its processes known: that decides the order of first sight, and to which of them a gap applies.
func tensorsInOrder(f fold) any {
	all := f.(*tensor.Fold).Report(3)
	for i := range all {
		all[i].Evidence = ""
	}
	slices.SortFunc(all, func(a, b tensor.Process) int {
		return cmp.Or(hostOf(a.Info).Compare(hostOf(b.Info)), cmp.Compare(a.ID.BootID, b.ID.BootID),
			cmp.Compare(a.ID.PID, b.ID.PID))
	})
	return all
}
