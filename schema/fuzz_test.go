package schema_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

func FuzzDecode(f *testing.F) {
	for _, m := range released(f) {
		f.Add(m.data)
	}
	f.Add(good())
	f.Add(memory())
	f.Fuzz(func(t *testing.T, data []byte) {
		var b schema.Batch
		if err := schema.NewDecoder().Decode(data, &b); err != nil {
			if !errors.Is(err, schema.ErrMalformed) {
				t.Fatalf("error %v does not wrap ErrMalformed", err)
			}
			return
		}
		_ = rowsText(&b) // looks every index up
		expanded := make([]uint64, b.Events)
		for id := range schema.Columns {
			c := schema.ColumnOf(&b, id)
			for i, v := range c.Values(expanded, b.Events) {
				if v != c.At(i) {
					t.Fatalf("Values gives %d, At(%d) %d", v, i, c.At(i))
				}
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint16(100), uint8(0))
	f.Add(uint64(2), uint16(1), uint8(64))
	f.Add(uint64(3), uint16(5000), uint8(17))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, spread uint8) {
		r := source{rand.New(rand.NewPCG(seed, 0)), spread % 65}
		roundTripMemory(t, r, int(n))
		roundTripLaunch(t, r, int(n))
		roundTripCopy(t, r, int(n))
		roundTripSync(t, r, int(n))
		roundTripTensor(t, r, int(n))
		roundTripHost(t, r, int(n)%500)
	})
}

// source draws numbers of up to bits bits, so that columns of every width come about.
type source struct {
	*rand.Rand
	bits uint8
}

func (r source) number() uint64 {
	if r.bits == 0 {
		return 7
	}
	return r.Uint64() >> (64 - r.bits)
}

func (r source) time() schema.KTime { return schema.KTime(r.number()) }

func decoded(t *testing.T, b *schema.Builder, n int) *schema.Batch {
	t.Helper()
	data := b.Encode(header(1))
	if len(data) > b.Size() {
		t.Fatalf("%d bytes, above Size %d", len(data), b.Size())
	}
	var batch schema.Batch
	if err := schema.NewDecoder().Decode(data, &batch); err != nil {
		t.Fatal(err)
	}
	if batch.Events != n || batch.Kind != b.Kind() {
		t.Fatalf("%d events of %s, want %d of %s", batch.Events, batch.Kind, n, b.Kind())
	}
	return &batch
}

func equal[E comparable](t *testing.T, want []E, at func(int) E) {
	t.Helper()
	for i := range want {
		if got := at(i); got != want[i] {
			t.Fatalf("event %d: %+v, want %+v", i, got, want[i])
		}
	}
}

func roundTripMemory(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindMemory)
	events := make([]schema.Memory, n)
	var contexts []schema.Context
	var stacks []schema.Stack
	for i := range events {
		gpu := b.GPU(schema.GPU{Ordinal: uint32(r.IntN(8)), Inferred: r.IntN(2) > 0}) - uint32(r.IntN(2))
		c := schema.Context{Handle: r.number(), GPU: gpu}
		e := &events[i]
		*e = schema.Memory{
			Time: r.time(), Duration: r.number(), Result: uint32(r.number()), Ptr: r.number(), Bytes: r.number(),
			Aux:    r.number(),
			Thread: b.Thread(schema.Thread{Process: b.Process(r.process()), TID: uint32(r.number())}),
			Call:   b.Call(r.call()), GPU: gpu, Pool: r.number(), Context: b.Context(c),
		}
		s := r.stack()
		if e.Stack = b.Stack(s); int(e.Stack) > len(stacks) {
			stacks = append(stacks, s)
		}
		if int(e.Context) > len(contexts) {
			contexts = append(contexts, c)
		}
		e.Context -= uint32(r.IntN(2))
		b.AddMemory(e)
	}
	batch := decoded(t, b, n)
	equal(t, events, batch.Memory)
	if !slices.Equal(batch.Contexts, contexts) {
		t.Fatalf("contexts %v, want %v", batch.Contexts, contexts)
	}
	if !slices.EqualFunc(batch.Stacks, stacks, func(a, b schema.Stack) bool {
		return a.Name == b.Name && slices.Equal(a.Frames, b.Frames)
	}) {
		t.Fatalf("stacks %v, want %v", batch.Stacks, stacks)
	}
}

// stack is one of many whose frames begin alike, and whose texts are the same when they are joined.
func (r source) stack() schema.Stack {
	frames := strings.Split(strings.Repeat("ab", r.IntN(20)), []string{"a", "b", "ba", "c"}[r.IntN(4)])
	return schema.Stack{Frames: frames[:r.IntN(len(frames)+1)], Name: frames[r.IntN(len(frames))]}
}

// process is one of nine, every field set in some.
func (r source) process() schema.Process {
	i := r.IntN(9)
	text := strings.Repeat("x", i*i)
	return schema.Process{
		PID: uint32(i), NSPID: uint32(i * 1000), Late: i%2 > 0, User: text, Cgroup: text +
			text, Pod: text, Unit: text, Exe: text, Container: text,
	}
}

// call is one of the table, recorded into a graph or not.
func (r source) call() schema.CallRef {
	c := schema.Calls[r.IntN(len(schema.Calls))].Ref()
	if r.IntN(2) > 0 {
		c.Op = schema.OpRecord
	}
	return c
}

func roundTripLaunch(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindLaunch)
	events := make([]schema.Launch, n)
	thread := b.Thread(schema.Thread{Process: b.Process(train)})
	var shapes []schema.LaunchShape
	var graphs []schema.Graph
	for i := range events {
		f := b.Func(schema.Func{Handle: r.number(), Read: r.IntN(2) > 0})
		s := schema.LaunchShape{
			Call: b.Call(call("cuLaunchKernel").Ref()), Func: f,
			Grid: [3]uint32{uint32(r.number()), 1, 2}, Block: [3]uint32{3, uint32(r.number()), 4},
			SharedBytes: uint32(r.number()),
		}
		e := &events[i]
		*e = schema.Launch{Time: r.time(), Thread: thread, Shape: b.Shape(s), CUDAStream: b.CUDAStream(r.number())}
		if int(e.Shape) == len(shapes) {
			shapes = append(shapes, s)
		}
		b.AddLaunch(e)
		if i%64 == 0 {
			g := schema.Graph{Func: f, Partial: r.IntN(2) > 0, Nodes: make([]schema.Node, r.IntN(100))}
			for k := range g.Nodes {
				g.Nodes[k] = schema.Node{Func: r.Uint32N(f + 1), Count: uint32(r.number())}
			}
			b.Graph(g)
			graphs = append(graphs, g)
		}
	}
	batch := decoded(t, b, n)
	equal(t, events, batch.Launch)
	if !slices.Equal(batch.Shapes, shapes) {
		t.Fatalf("shapes %v, want %v", batch.Shapes, shapes)
	}
	if !slices.EqualFunc(batch.Graphs, graphs, func(a, b schema.Graph) bool {
		return a.Func == b.Func && a.Partial == b.Partial && slices.Equal(a.Nodes, b.Nodes)
	}) {
		t.Fatalf("graphs %v, want %v", batch.Graphs, graphs)
	}
}

func roundTripCopy(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindCopy)
	events := make([]schema.Copy, n)
	thread := b.Thread(schema.Thread{Process: b.Process(idle)})
	for i := range events {
		e := &events[i]
		*e = schema.Copy{
			Time: r.time(), Duration: r.number(), Thread: thread, Call: b.Call(call("cuMemcpyHtoD_v2").Ref()),
			Result: uint32(r.number()),
			Bytes:  r.number(), Dst: r.number(), Src: r.number(), CUDAStream: b.CUDAStream(r.number()),
			HostMem: schema.HostMem(r.number() % 3),
		}
		b.AddCopy(e)
	}
	equal(t, events, decoded(t, b, n).Copy)
}

func roundTripSync(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindSync)
	events := make([]schema.Sync, n)
	thread := b.Thread(schema.Thread{Process: b.Process(idle)})
	for i := range events {
		e := &events[i]
		*e = schema.Sync{
			Time: r.time(), Duration: r.number(), Thread: thread, Call: b.Call(call("cuEventRecord").Ref()),
			Result:     uint32(r.number()),
			CUDAStream: b.CUDAStream(r.number()), CUDAEvent: r.number(), Until: r.number(), Elapsed: r.number(),
		}
		b.AddSync(e)
	}
	equal(t, events, decoded(t, b, n).Sync)
}

func roundTripTensor(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindTensor)
	events := make([]schema.Tensor, n)
	thread := b.Thread(schema.Thread{Process: b.Process(r.process())})
	for i := range events {
		e := &events[i]
		*e = schema.Tensor{
			Time: r.time(), Thread: thread, Call: b.Call(schema.CallRef{Op: schema.OpBlockFree}), Ptr: r.number(),
			GPU: b.GPU(schema.GPU{UUID: "GPU-1", Bytes: r.number()}), Bytes: r.number(), Allocated: r.number(),
			Reserved: r.number(),
		}
		b.AddTensor(e)
	}
	equal(t, events, decoded(t, b, n).Tensor)
}

// roundTripHost is a heartbeat with n libraries, processes and GPUs.
func roundTripHost(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindHost)
	for range n {
		text := strings.Repeat("x", r.IntN(300))
		list := slices.Repeat([]string{text}, r.IntN(3))
		if len(list) == 0 {
			list = nil // as it is decoded
		}
		b.Libraries = append(
			b.Libraries,
			schema.Library{
				Path: text, Inode: r.number(), Attached: uint32(r.number()), Stepped: uint32(r.number()), Absent: list,
				Failed: list,
			},
		)
		b.Coverage = append(
			b.Coverage,
			schema.Coverage{
				Process: b.Process(r.process()), Asked: uint32(r.number()), Outside: list,
				ExportTables: uint32(r.number()),
			},
		)
		b.GPU(schema.GPU{UUID: text, Ordinal: uint32(r.number()), Inferred: r.IntN(2) > 0, Name: text, Bus: text,
			Bytes: r.number()})
		b.Ends = append(b.Ends, schema.End{Kind: schema.KindCopy, Seq: r.number(), Through: r.time()})
	}
	batch := decoded(t, b, 0)
	if !slices.Equal(batch.Ends, b.Ends) {
		t.Fatalf("ends %v, want %v", batch.Ends, b.Ends)
	}
	if len(batch.Libraries) != n || len(batch.Coverage) != n {
		t.Fatalf("%d libraries, %d coverages, want %d", len(batch.Libraries), len(batch.Coverage), n)
	}
	for i := range n {
		if !reflect.DeepEqual(
			batch.Libraries[i], b.Libraries[i],
		) || !reflect.DeepEqual(batch.Coverage[i], b.Coverage[i]) {
			t.Fatalf(
				"row %d: %+v, %+v, want %+v, %+v", i, batch.Libraries[i], batch.Coverage[i], b.Libraries[i],
				b.Coverage[i],
			)
		}
	}
}
