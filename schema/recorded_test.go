package schema

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"testing"
	"time"
)

// recorded is a PyTorch training run of 800 steps on an H200 (cudaMallocAsync backend), batch by
// batch as it was published: each with its length before it, 4 bytes little endian.
func recorded(tb testing.TB) [][]byte {
	file, err := os.Open("testdata/pytorch.batches.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(unpacked)
	if err != nil {
		tb.Fatal(err)
	}
	var messages [][]byte
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		messages = append(messages, data[4:4+n])
		data = data[4+n:]
	}
	return messages
}

// budget is the most bytes an event may take on the wire, dictionaries included.
var budget = map[Kind]float64{KindMemory: 22, KindLaunch: 16}

// TestRecordedRun: the figures are the training script's: 800 steps, each one batch of 512×1024 floats
// to the card; and the wire stays within its budget.
func TestRecordedRun(t *testing.T) {
	decoder := NewDecoder()
	var b Batch
	var bytes, events [NumKinds]int
	var sent uint64
	frees, allocs := 0, 0
	for _, data := range recorded(t) {
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		bytes[b.Kind] += len(data)
		events[b.Kind] += b.Events
		for i := range b.Events {
			switch b.Kind {
			case KindCopy:
				if e := b.Copy(i); b.Calls[e.Call].Direction == HtoD && e.Bytes == 512*1024*4 {
					sent++
				}
			case KindMemory:
				switch b.Calls[b.Call().At(i)].Op {
				case OpAlloc:
					allocs++
				case OpFree:
					frees++
				}
			}
		}
	}
	if sent != 800 {
		t.Errorf("%d batches were sent to the card, want 800", sent)
	}
	if allocs == 0 || frees == 0 || allocs < frees {
		t.Errorf("%d allocations and %d frees", allocs, frees)
	}
	for kind := range budget {
		if got := float64(bytes[kind]) / float64(events[kind]); got > budget[kind] {
			t.Errorf("%s: %.1f bytes an event, budget %.0f", kind, got, budget[kind])
		}
	}
}

// TestBudgetHoldsForLargestDictionaries adds to each recorded batch the fields of a Kubernetes pod, a context for each
// memory event, and a graph. The budget still holds.
func TestBudgetHoldsForLargestDictionaries(t *testing.T) {
	for kind, most := range budget {
		decoder, builder := NewDecoder(), NewBuilder(kind)
		var b, again Batch
		bytes, events := 0, 0
		for _, data := range recorded(t) {
			if err := decoder.Decode(data, &b); err != nil {
				t.Fatal(err)
			}
			if b.Kind != kind {
				continue
			}
			rebuild(builder, &b)
			data = builder.Encode(&b.Header)
			if len(data) > builder.Size() {
				t.Fatalf("%d bytes, above Size %d", len(data), builder.Size())
			}
			if err := decoder.Decode(data, &again); err != nil || again.Events != b.Events {
				t.Fatalf("%d events, %v", again.Events, err)
			}
			bytes += len(data)
			events += b.Events
		}
		got := float64(bytes) / float64(events)
		t.Logf("%s: %.2f bytes an event", kind, got)
		if got > most {
			t.Errorf("%s: %.1f bytes an event, budget %.0f", kind, got, most)
		}
	}
}

// rebuild fills the Builder with the batch and more fields. Dictionaries keep their order, and so events their indices.
func rebuild(to *Builder, b *Batch) {
	to.Reset()
	for _, p := range b.Processes {
		p.User, p.NSPID = "researcher", 117
		p.Pod = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
		p.Cgroup = ("/kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/" +
			"cri-containerd-9f86d081884c7d659a2feaa0c55ad015.scope")[:120]
		to.Process(p)
	}
	for _, th := range b.Threads {
		to.Thread(th)
	}
	for _, g := range b.GPUs {
		to.GPU(g)
	}
	for _, c := range b.Calls {
		to.Call(c)
	}
	for _, f := range b.Funcs {
		to.Func(f)
	}
	for _, s := range b.Shapes {
		to.Shape(s)
	}
	for _, q := range b.CUDAStreams {
		to.CUDAStream(q)
	}
	if b.Kind == KindLaunch {
		graph := Graph{Func: to.Func(Func{Handle: 0x5500_0000_0000})}
		for i := range b.Funcs {
			graph.Nodes = append(graph.Nodes, Node{Func: uint32(i), Count: 100})
		}
		to.Graph(graph)
	}
	for i := range b.Events {
		switch b.Kind {
		case KindMemory:
			e := b.Memory(i)
			e.Context = to.Context(Context{Handle: 0x5500_0000_0100, GPU: e.GPU})
			to.AddMemory(&e)
		case KindLaunch:
			e := b.Launch(i)
			to.AddLaunch(&e)
		}
	}
}

func BenchmarkRecordedRun(b *testing.B) {
	messages := recorded(b)
	decoder := NewDecoder()
	var batch Batch
	column := make([]uint64, MaxEvents)
	var bytes, events [NumKinds]int
	var took [NumKinds]time.Duration
	for b.Loop() {
		for _, data := range messages {
			start := time.Now()
			if err := decoder.Decode(data, &batch); err != nil {
				b.Fatal(err)
			}
			if batch.Events > 0 {
				for _, id := range kindColumns[batch.Kind] {
					batch.columns[id].Values(column, batch.Events)
				}
			}
			took[batch.Kind] += time.Since(start)
			bytes[batch.Kind] += len(data)
			events[batch.Kind] += batch.Events
		}
	}
	for kind := KindMemory; kind <= KindLaunch; kind++ {
		b.ReportMetric(float64(bytes[kind])/float64(events[kind]), kind.String()+"-B/event")
		b.ReportMetric(float64(took[kind].Nanoseconds())/float64(events[kind]), kind.String()+"-decode-ns/event")
	}
	b.ReportMetric(0, "ns/op")
}
