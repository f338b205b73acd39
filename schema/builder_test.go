package schema_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestSizeIsABound fills batches with what takes most room: wide numbers, long names, one row of
// every dictionary per event.
func TestSizeIsABound(t *testing.T) {
	h := &schema.Header{
		Cluster: strings.Repeat("c", 255), Host: strings.Repeat("h", 255), BootID: strings.Repeat("b", 36),
		Run: math.MaxUint64, Seq: math.MaxUint64, ClockOffset: math.MinInt64,
	}
	for i := range h.Lost {
		h.Lost[i] = math.MaxUint64
	}
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		b := schema.NewBuilder(kind)
		for _, n := range []int{0, 1, 1000} {
			t.Run(fmt.Sprintf("%s of %d", kind, n), func(t *testing.T) {
				b.Reset()
				for i := range n {
					addWide(b, uint32(i))
				}
				if n > 0 && kind == schema.KindHost {
					b.Libraries = append(b.Libraries, schema.Library{
						Path: strings.Repeat("p", 4096), Inode: math.MaxUint64, Attached: math.MaxUint32,
						Stepped: math.MaxUint32,
						Absent:  []string{strings.Repeat("a", 300), "b"}, Failed: slices.Repeat([]string{"failed"}, n),
					})
					for range n {
						b.Coverage = append(b.Coverage, schema.Coverage{
							Process: math.MaxUint32, Asked: math.MaxUint32, ExportTables: math.MaxUint32,
							Outside: []string{strings.Repeat("o", 300), ""},
						})
					}
				}
				data := b.Encode(h)
				if len(data) > b.Size() {
					t.Errorf("%d bytes, above Size %d", len(data), b.Size())
				}
				if n == 1000 && kind != schema.KindHost && b.Size() > len(data)+len(data)/4 {
					t.Errorf("Size %d is far above %d bytes", b.Size(), len(data))
				}
			})
		}
	}
}

// TestSizeOfDictionaries: what Size takes for a row of each dictionary is enough alone.
func TestSizeOfDictionaries(t *testing.T) {
	const top, most = math.MaxUint32, math.MaxUint64
	all := [3]uint32{top, top, top}
	tests := []struct {
		name   string
		intern func(b *schema.Builder, i uint32)
	}{
		{"processes", func(b *schema.Builder, i uint32) {
			long := strings.Repeat("e", 300)
			b.Process(schema.Process{
				PID: top - i, Start: most, UID: top, Comm: long, Exe: strings.Repeat("e", 4095), Container: long,
				Late: true,
				User: long, NSPID: top, Cgroup: long, Pod: long, Unit: long,
			})
		}},
		{"threads", func(b *schema.Builder, i uint32) {
			b.Thread(schema.Thread{Process: top, TID: top - i, Comm: strings.Repeat("c", 300)})
		}},
		{"GPUs", func(b *schema.Builder, i uint32) {
			long := strings.Repeat("g", 300)
			b.GPU(schema.GPU{UUID: long, Ordinal: top - i, Inferred: true, Name: long, Bus: long})
		}},
		{"calls", func(b *schema.Builder, i uint32) {
			b.Call(schema.CallRef{
				Symbol: strings.Repeat("s", 300) + fmt.Sprint(i), Op: schema.OpContextRelease,
				Class: schema.ClassRegistered, Direction: schema.DirDefault,
			})
		}},
		{"functions", func(b *schema.Builder, i uint32) {
			b.Func(schema.Func{Name: strings.Repeat("f", 300), Handle: most - uint64(i), Read: true})
		}},
		{"shapes", func(b *schema.Builder, i uint32) {
			b.Shape(schema.LaunchShape{Call: top, Func: top, Grid: all, Block: all, SharedBytes: top - i})
		}},
		{"graphs", func(b *schema.Builder, _ uint32) { b.Graph(schema.Graph{Func: top, Partial: true}) }},
		{"nodes", func(b *schema.Builder, i uint32) {
			b.Graph(schema.Graph{Func: top, Nodes: slices.Repeat([]schema.Node{{Func: top, Count: top}}, int(i)/10)})
		}},
		{"contexts", func(b *schema.Builder, i uint32) {
			b.Context(schema.Context{Handle: most - uint64(i),
				GPU: top})
		}},
		{"stacks", func(b *schema.Builder, i uint32) {
			b.Stack(schema.Stack{Frames: slices.Repeat([]string{strings.Repeat("f", 300)}, 3), Name: fmt.Sprint(i)})
		}},
		{"empty frames", func(b *schema.Builder, i uint32) {
			b.Stack(schema.Stack{Frames: make([]string, i/10), Name: fmt.Sprint(i)})
		}},
		{"CUDA streams", func(b *schema.Builder, i uint32) { b.CUDAStream(most - uint64(i)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := schema.NewBuilder(schema.KindLaunch)
			for i := range uint32(1000) {
				tt.intern(b, i)
			}
			if n := len(b.Encode(header(1))); n > b.Size() {
				t.Errorf("%d bytes, above Size %d", n, b.Size())
			}
		})
	}
}

func addWide(b *schema.Builder, i uint32) {
	top, id := uint32(math.MaxUint32)-i, fmt.Sprint(math.MaxUint32-i)
	p := b.Process(schema.Process{
		PID: top, Start: math.MaxUint64, UID: top, Comm: "comm-of-15-byte", Exe: strings.Repeat("e", 4095),
		Container: strings.Repeat("0", 64),
		Late:      true, User: "user", NSPID: top, Cgroup: strings.Repeat("g", 120), Pod: strings.Repeat("p", 36),
		Unit: "gputap.service", Job: strings.Repeat("j", 80), Rank: top, Ranks: top,
	})
	th := b.Thread(schema.Thread{Process: p, TID: top, Comm: "comm-of-15-byte"})
	gpu := b.GPU(schema.GPU{UUID: h200.UUID, Ordinal: top, Inferred: true, Bytes: math.MaxUint64})
	cuda := b.Context(schema.Context{Handle: math.MaxUint64 - uint64(i), GPU: gpu})
	c := b.Call(schema.CallRef{
		Symbol: strings.Repeat("s", 40) + id, Op: schema.OpContextRelease, Class: schema.ClassRegistered,
		Direction: schema.DirDefault,
	})
	f := b.Func(schema.Func{Name: strings.Repeat("f", 3000) + id, Handle: math.MaxUint64, Read: true})
	b.Graph(schema.Graph{Func: f, Partial: true, Nodes: []schema.Node{{Func: f, Count: top}, {Func: f, Count: top}}})
	all := [3]uint32{top, top, top}
	s := b.Shape(schema.LaunchShape{Call: c, Func: f, Grid: all, Block: all, SharedBytes: top})
	q := b.CUDAStream(math.MaxUint64 - uint64(i))
	wide := uint64(math.MaxUint64) * uint64(i%2)
	switch b.Kind() {
	case schema.KindMemory:
		b.AddMemory(&schema.Memory{
			Time: schema.KTime(wide), Duration: wide, Thread: th, Call: c, GPU: gpu, Result: top, Ptr: wide,
			Bytes: wide, Aux: wide, Context: cuda, Pool: wide,
			Stack: b.Stack(schema.Stack{Frames: []string{strings.Repeat("f", 300) + id, "main"}, Name: id}),
		})
	case schema.KindLaunch:
		b.AddLaunch(&schema.Launch{Time: schema.KTime(wide), Thread: th, GPU: gpu, Shape: s, CUDAStream: q})
	case schema.KindCopy:
		b.AddCopy(&schema.Copy{
			Time: schema.KTime(wide), Duration: wide, Thread: th, Call: c, GPU: gpu, Result: top, Bytes: wide,
			Dst: wide, Src: wide, CUDAStream: q,
		})
	case schema.KindSync:
		b.AddSync(&schema.Sync{
			Time: schema.KTime(wide), Duration: wide, Thread: th, Call: c, GPU: gpu, Result: top, CUDAStream: q,
			CUDAEvent: wide, Until: wide, Elapsed: wide,
		})
	case schema.KindTensor:
		b.AddTensor(&schema.Tensor{
			Time: schema.KTime(wide), Thread: th, Call: c, GPU: gpu, Ptr: wide, Bytes: wide, Allocated: wide,
			Reserved: wide,
		})
	case schema.KindRank:
		b.Origin = strings.Repeat("o", 255)
		b.AddRank(&schema.Rank{
			Time: schema.KTime(wide), Duration: wide, Thread: th, Bytes: wide, From: schema.Allocating,
			To: schema.Allocating, Count: wide,
		})
	}
}

// TestSizeCountsNewEntries: interning a known value again costs nothing.
func TestSizeCountsNewEntries(t *testing.T) {
	b := schema.NewBuilder(schema.KindLaunch)
	intern := func() {
		b.Thread(schema.Thread{Process: b.Process(train), Comm: "pt_main"})
		b.GPU(h200)
		b.Call(call("cuLaunchKernel").Ref())
		b.Func(schema.Func{Name: strings.Repeat("k", 1000)})
		b.Context(schema.Context{Handle: 1})
	}
	intern()
	want := b.Size()
	for range 1000 {
		intern()
	}
	if got := b.Size(); got != want {
		t.Errorf("Size %d after interning known values, want %d", got, want)
	}
}

// TestColumnWidths pins the smallest width that holds each spread: bytes of the message beyond the
// constant form.
func TestColumnWidths(t *testing.T) {
	size := func(bytes ...uint64) int {
		b := schema.NewBuilder(schema.KindMemory)
		th, c := b.Thread(schema.Thread{Process: b.Process(idle)}), b.Call(call("cuMemAlloc_v2").Ref())
		for _, v := range bytes {
			b.AddMemory(&schema.Memory{Thread: th, Call: c, Bytes: 100 + v})
		}
		return len(b.Encode(header(1)))
	}
	constant := size(0, 0)
	tests := []struct {
		spread uint64
		width  int
	}{{0, 0}, {1, 1}, {255, 1}, {256, 2}, {65535, 2}, {65536, 4}, {math.MaxUint32, 4}, {math.MaxUint32 + 1, 8},
		{math.MaxUint64 - 100, 8}}
	for _, tt := range tests {
		if got := size(0, tt.spread) - constant; got != 2*tt.width {
			t.Errorf("spread %d: %d bytes for two values, want %d", tt.spread, got, 2*tt.width)
		}
	}
}

// TestBuilderReuse expects equal bytes from a Builder after Reset.
func TestBuilderReuse(t *testing.T) {
	b := schema.NewBuilder(schema.KindLaunch)
	fill := func() []byte {
		b.Reset()
		for i := range uint32(100) {
			addWide(b, i%7)
		}
		return b.Encode(header(1))
	}
	first := bytes.Clone(fill())
	if again := fill(); !bytes.Equal(first, again) {
		t.Error("the same events encode differently after Reset")
	}
}

// TestAddAllocatesNothing: events, contexts and graphs cost no memory once the Builder has grown.
func TestAddAllocatesNothing(t *testing.T) {
	tests := []struct {
		kind schema.Kind
		add  func(*schema.Builder)
	}{
		{schema.KindMemory, func(b *schema.Builder) {
			b.AddMemory(&schema.Memory{Time: 1, Context: b.Context(schema.Context{Handle: 2}), Pool: 3})
		}},
		{schema.KindLaunch, func(b *schema.Builder) { b.AddLaunch(&schema.Launch{Time: 1}) }},
		{schema.KindLaunch, func(b *schema.Builder) {
			b.Graph(schema.Graph{Nodes: []schema.Node{{Func: 1, Count: 2}}})
		}},
		{schema.KindCopy, func(b *schema.Builder) { b.AddCopy(&schema.Copy{Time: 1}) }},
		{schema.KindSync, func(b *schema.Builder) { b.AddSync(&schema.Sync{Time: 1}) }},
	}
	for _, tt := range tests {
		b := schema.NewBuilder(tt.kind)
		if n := testing.AllocsPerRun(10, func() {
			b.Reset()
			for range 100 {
				tt.add(b)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for 100, want 0", tt.kind, n)
		}
	}
}

// TestGraphNodesAreCopied: who adds a graph may use the memory of its nodes again at once.
func TestGraphNodesAreCopied(t *testing.T) {
	b := schema.NewBuilder(schema.KindLaunch)
	for i := range uint64(3) {
		b.Func(schema.Func{Handle: i})
	}
	var scratch []schema.Node
	for i := range uint32(100) {
		scratch = append(scratch[:0], schema.Node{Func: i % 3, Count: i}, schema.Node{Func: 1, Count: 2 * i})
		b.Graph(schema.Graph{Func: i % 3, Nodes: scratch})
	}
	clear(scratch)
	var got schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(header(1)), &got); err != nil {
		t.Fatal(err)
	}
	for i, g := range got.Graphs {
		if want := []schema.Node{{Func: uint32(i % 3), Count: uint32(i)},
			{Func: 1, Count: uint32(2 * i)}}; !slices.Equal(g.Nodes, want) {
			t.Fatalf("graph %d runs %v, want %v", i, g.Nodes, want)
		}
	}
}

// TestHugeGraphsAreCut: nodes above the limit of a message cost the graph its tail, never the batch.
func TestHugeGraphsAreCut(t *testing.T) {
	b := schema.NewBuilder(schema.KindLaunch)
	f := b.Func(schema.Func{Handle: 1})
	for _, nodes := range []int{60_000, 6_000, 1} {
		b.Graph(schema.Graph{Func: f, Nodes: make([]schema.Node, nodes)})
	}
	var got schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(header(1)), &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{60_000, 5_536, 0} {
		if g := got.Graphs[i]; len(g.Nodes) != want || g.Partial != (i > 0) {
			t.Errorf("graph %d: %d nodes, partial %t, want %d, %t", i, len(g.Nodes), g.Partial, want, i > 0)
		}
	}
}

// TestStacksAboveTheLimitAreUnknown: a stack that a message cannot hold is unknown, and never costs the batch.
func TestStacksAboveTheLimitAreUnknown(t *testing.T) {
	b := schema.NewBuilder(schema.KindMemory)
	th, c := b.Thread(schema.Thread{Process: b.Process(idle)}), b.Call(call("cuMemAlloc_v2").Ref())
	for i, want := range []uint32{1, 2, 1, 0, 0, 3} {
		frames := make([]string, []int{60_000, 70_000, 60_000, 1_073, 131_073, 1_072}[i])
		got := b.Stack(schema.Stack{Frames: frames})
		if got != want {
			t.Errorf("stack %d of %d frames has the index %d, want %d", i, len(frames), got, want)
		}
		b.AddMemory(&schema.Memory{Thread: th, Call: c, Stack: got})
	}
	var got schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(header(1)), &got); err != nil || len(got.Stacks) != 3 {
		t.Fatalf("%d stacks, %v", len(got.Stacks), err)
	}
}

// TestUnusedStacksCostNothing: a batch without stacks has neither the dictionary nor the column, also after one that
// had them.
func TestUnusedStacksCostNothing(t *testing.T) {
	b := schema.NewBuilder(schema.KindMemory)
	for range 2 {
		th, c := b.Thread(schema.Thread{Process: b.Process(idle)}), b.Call(call("cuMemAlloc_v2").Ref())
		b.AddMemory(&schema.Memory{Thread: th, Call: c})
		data := b.Encode(header(1))
		if bytes.Contains(data, []byte("\xa2st")) || bytes.Contains(data, []byte("stacks")) {
			t.Errorf("the message has stacks: %q", data)
		}
		frames := []string{"main"}
		b.AddMemory(&schema.Memory{Thread: th, Call: c, Stack: b.Stack(schema.Stack{Frames: frames})})
		frames[0] = "overwritten" // the Builder has copied it
		var got schema.Batch
		if err := schema.NewDecoder().Decode(b.Encode(header(1)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Memory(0).Stack != 0 || got.Memory(1).Stack != 1 || got.Stacks[0].Frames[0] != "main" {
			t.Errorf("events %+v, %+v, stacks %v", got.Memory(0), got.Memory(1), got.Stacks)
		}
		b.Reset()
	}
}

// TestLongNamesAreCut: a name above the limit costs its tail, never the batch.
func TestLongNamesAreCut(t *testing.T) {
	b := schema.NewBuilder(schema.KindLaunch)
	name := strings.Repeat("k", 5000)
	s := b.Shape(schema.LaunchShape{Call: b.Call(call("cuLaunchKernel").Ref()), Func: b.Func(schema.Func{Name: name})})
	b.AddLaunch(&schema.Launch{
		Thread: b.Thread(schema.Thread{Process: b.Process(train)}), Shape: s, CUDAStream: b.CUDAStream(0),
	})
	var got schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(header(1)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Funcs[0].Name != name[:4096] {
		t.Errorf("name of %d bytes, want the first 4096", len(got.Funcs[0].Name))
	}
}

// TestDecodeKeepsNames: a second batch with the same names allocates no strings.
func TestDecodeKeepsNames(t *testing.T) {
	d := schema.NewDecoder()
	var b schema.Batch
	data := launchGolden()
	if err := d.Decode(data, &b); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { _ = d.Decode(data, &b) }); n != 0 {
		t.Errorf("%v allocations to decode known names, want 0", n)
	}
}

// TestShard pins placements computed with an independent FNV-1a32.
func TestShard(t *testing.T) {
	tests := []struct {
		cluster, host string
		shards, want  int
	}{{"lab", "gpu01", 1, 0}, {"lab", "gpu01", 16, 13}, {"", "", 16, 0x811c9dc5 % 16}, {"lab", "gpu01", 0, 0}}
	for _, tt := range tests {
		if got := schema.Shard(tt.cluster, tt.host, tt.shards); got != tt.want {
			t.Errorf("Shard(%q, %q, %d) = %d, want %d", tt.cluster, tt.host, tt.shards, got, tt.want)
		}
	}
	if got, want := schema.Subject(
		3, "my lab", "gpu01.example", schema.KindMemory,
	), "gputap.v1.ev.3.my_lab.gpu01_example.memory"; got != want {
		t.Errorf("subject %s, want %s", got, want)
	}
	if got := schema.Token("a.b*c>d\te\x7f") + " " + schema.Token(""); got != "a_b_c_d_e_ _" {
		t.Errorf("tokens %q", got)
	}
}

// TestEveryFieldTravels sets each field of each event to another number and expects it back.
func TestEveryFieldTravels(t *testing.T) {
	trip(t, schema.KindMemory, (*schema.Builder).AddMemory, (*schema.Batch).Memory)
	trip(t, schema.KindLaunch, (*schema.Builder).AddLaunch, (*schema.Batch).Launch)
	trip(t, schema.KindCopy, (*schema.Builder).AddCopy, (*schema.Batch).Copy)
	trip(t, schema.KindSync, (*schema.Builder).AddSync, (*schema.Batch).Sync)
	trip(t, schema.KindTensor, (*schema.Builder).AddTensor, (*schema.Batch).Tensor)
	trip(t, schema.KindRank, (*schema.Builder).AddRank, (*schema.Batch).Rank)
}

func trip[E any](t *testing.T, kind schema.Kind, add func(*schema.Builder, *E), read func(*schema.Batch, int) E) {
	t.Helper()
	b := schema.NewBuilder(kind)
	for i := range uint32(40) { // rows for every index
		b.GPU(schema.GPU{Ordinal: i})
		b.Thread(schema.Thread{Process: b.Process(train), TID: i})
		c, f := b.Call(schema.CallRef{Symbol: fmt.Sprint(i)}), b.Func(schema.Func{})
		b.Shape(schema.LaunchShape{Call: c, Func: f, SharedBytes: i})
		b.Context(schema.Context{Handle: uint64(i)})
		b.CUDAStream(uint64(i))
		b.Stack(schema.Stack{Name: fmt.Sprint(i)})
	}
	var event E
	fields := reflect.ValueOf(&event).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetUint(uint64(i + 1))
	}
	columns := 0
	for _, c := range schema.Columns {
		if slices.Contains(c.Kinds, kind) {
			columns++
		}
	}
	if columns != fields.NumField() {
		t.Errorf("%s has %d columns and its event %d fields", kind, columns, fields.NumField())
	}
	add(b, &event)
	var got schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(header(1)), &got); err != nil {
		t.Fatal(err)
	}
	if decoded := read(&got, 0); !reflect.DeepEqual(decoded, event) {
		t.Errorf("%s: %+v, want %+v", kind, decoded, event)
	}
}
