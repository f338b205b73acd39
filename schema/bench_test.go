package schema_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// A batch closes at 4,096 events: the form that the benchmarks measure.
const benchEvents = 4096

// rowMemory and rowLaunch are the same events as the rival writes them: one msgpack array each,
// through reflection.
type rowMemory struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // read by reflection
	schema.Memory
}

type rowLaunch struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // read by reflection
	schema.Launch
	schema.LaunchShape
}

// internMemory fills the dictionaries of a process with 4 threads.
func internMemory(b *schema.Builder) {
	p := b.Process(train)
	b.GPU(h200)
	for i := range uint32(4) {
		b.Thread(schema.Thread{Process: p, TID: 4242 + i})
	}
	for _, symbol := range []string{"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync", "cuMemFreeAsync"} {
		b.Call(call(symbol).Ref())
	}
}

// memoryEvents is a caching allocator at work: 2 MiB multiples at 2 MiB boundaries, about 4,000
// events a second.
func memoryEvents() []schema.Memory {
	r := rand.New(rand.NewPCG(1, 1))
	events := make([]schema.Memory, benchEvents)
	now := schema.KTime(10_000_000_000)
	for i := range events {
		now += schema.KTime(r.IntN(500_000))
		events[i] = schema.Memory{
			Time: now, Duration: uint64(500 + r.IntN(60_000)), Thread: r.Uint32N(4), Call: r.Uint32N(4), GPU: 1,
			Ptr: 0x7f00_0000_0000 + r.Uint64N(40_000)<<21, Bytes: r.Uint64N(64) << 21,
		}
	}
	return events
}

func addMemory(b *schema.Builder, events []schema.Memory) {
	internMemory(b)
	for i := range events {
		b.AddMemory(&events[i])
	}
}

// internLaunch fills the dictionaries of a training step: 60 kernels in 180 shapes on 2 threads
// and 3 CUDA streams.
func internLaunch(b *schema.Builder) {
	const name = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
	p, c := b.Process(train), b.Call(call("cuLaunchKernel").Ref())
	b.GPU(h200)
	for i := range uint32(2) {
		b.Thread(schema.Thread{Process: p, TID: 4242 + i})
	}
	for i := range uint64(3) {
		b.CUDAStream(i)
	}
	for i := range uint32(180) {
		f := b.Func(schema.Func{Name: name + string(rune('A'+i%60)), Handle: 0x5500_0000_0000 + uint64(i%60)*64})
		b.Shape(schema.LaunchShape{Call: c, Func: f, Grid: [3]uint32{1 + i*37, 1, 1}, Block: [3]uint32{256, 1, 1}})
	}
}

func launchEvents() []schema.Launch {
	r := rand.New(rand.NewPCG(2, 2))
	events := make([]schema.Launch, benchEvents)
	now := schema.KTime(10_000_000_000)
	for i := range events {
		now += schema.KTime(4000 + r.IntN(6000))
		events[i] = schema.Launch{
			Time: now, Thread: r.Uint32N(2), GPU: 1, Shape: r.Uint32N(180), CUDAStream: r.Uint32N(3),
		}
	}
	return events
}

func addLaunches(b *schema.Builder, events []schema.Launch) {
	internLaunch(b)
	for i := range events {
		b.AddLaunch(&events[i])
	}
}

// report gives the two numbers of the budget; n is the bytes of one batch.
func report(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchEvents), "ns/event")
	b.ReportMetric(float64(n)/benchEvents, "B/event")
	b.ReportAllocs()
}

func BenchmarkEncode(b *testing.B) {
	memory, launches := memoryEvents(), launchEvents()
	b.Run("memory", func(b *testing.B) { benchEncode(b, schema.KindMemory, memory, addMemory) })
	b.Run("memory/rows", func(b *testing.B) { benchEncodeRows(b, rowsOfMemory(memory)) })
	b.Run("launch", func(b *testing.B) { benchEncode(b, schema.KindLaunch, launches, addLaunches) })
	b.Run("launch/rows", func(b *testing.B) { benchEncodeRows(b, rowsOfLaunch(launches)) })
}

func BenchmarkDecode(b *testing.B) {
	memory, launches := memoryEvents(), launchEvents()
	b.Run("memory", func(b *testing.B) {
		builder := schema.NewBuilder(schema.KindMemory)
		addMemory(builder, memory)
		benchDecode(b, builder, func(m *schema.Batch) []*schema.Column {
			return []*schema.Column{
				m.Time(), m.Duration(), m.Thread(), m.Call(), m.GPU(), m.Result(), m.Ptr(), m.Bytes(),
			}
		})
	})
	b.Run("memory/rows", func(b *testing.B) { benchDecodeRows(b, rowsOfMemory(memory)) })
	b.Run("small", func(b *testing.B) { // a quiet host: the envelope is most of the message
		builder := schema.NewBuilder(schema.KindMemory)
		addMemory(builder, memory[:8])
		benchDecode(b, builder, func(*schema.Batch) []*schema.Column { return nil })
	})
	b.Run("launch", func(b *testing.B) {
		builder := schema.NewBuilder(schema.KindLaunch)
		addLaunches(builder, launches)
		benchDecode(b, builder,
			func(m *schema.Batch) []*schema.Column { return []*schema.Column{m.Thread(), m.Shape()} })
	})
	b.Run("launch/rows", func(b *testing.B) { benchDecodeRows(b, rowsOfLaunch(launches)) })
}

// benchEncode builds a batch from nothing, dictionaries included, and encodes it.
func benchEncode[E any](b *testing.B, kind schema.Kind, events []E, add func(*schema.Builder, []E)) {
	builder, h, n := schema.NewBuilder(kind), header(1), 0
	for b.Loop() {
		builder.Reset()
		add(builder, events)
		n = len(builder.Encode(h))
	}
	report(b, n)
}

// benchDecode decodes and expands the columns that a fold reads.
func benchDecode(b *testing.B, builder *schema.Builder, needed func(*schema.Batch) []*schema.Column) {
	data := bytes.Clone(builder.Encode(header(1)))
	d := schema.NewDecoder()
	var batch schema.Batch
	expanded := make([]uint64, benchEvents)
	for b.Loop() {
		if err := d.Decode(data, &batch); err != nil {
			b.Fatal(err)
		}
		for _, c := range needed(&batch) {
			c.Values(expanded, batch.Events)
		}
	}
	report(b, len(data))
}

func benchEncodeRows[R any](b *testing.B, rows []R) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	for b.Loop() {
		buf.Reset()
		for i := range rows {
			if err := enc.Encode(&rows[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	report(b, buf.Len())
}

func benchDecodeRows[R any](b *testing.B, rows []R) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	for i := range rows {
		if err := enc.Encode(&rows[i]); err != nil {
			b.Fatal(err)
		}
	}
	dec := msgpack.NewDecoder(nil)
	var row R
	for b.Loop() {
		dec.Reset(bytes.NewReader(buf.Bytes()))
		for range rows {
			if err := dec.Decode(&row); err != nil {
				b.Fatal(err)
			}
		}
	}
	report(b, buf.Len())
}

func rowsOfMemory(events []schema.Memory) []rowMemory {
	rows := make([]rowMemory, len(events))
	for i := range rows {
		rows[i].Memory = events[i]
	}
	return rows
}

func rowsOfLaunch(events []schema.Launch) []rowLaunch {
	b := schema.NewBuilder(schema.KindLaunch)
	addLaunches(b, events)
	var batch schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(header(1)), &batch); err != nil {
		panic(err)
	}
	rows := make([]rowLaunch, len(events))
	for i := range rows {
		rows[i] = rowLaunch{Launch: events[i], LaunchShape: batch.Shapes[events[i].Shape]}
	}
	return rows
}
