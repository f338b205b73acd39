package producer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/attach"
	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/schema"
)

// noLibraries answers for a host without attached libraries.
type noLibraries struct{}

func (noLibraries) IsLate(uint32, schema.KTime) bool { return false }
func (noLibraries) Ended(uint32)                     {}
func (noLibraries) Unseen(uint32) func(string, uint64) string {
	return func(string, uint64) string { return "" }
}

// newTestTranslator translates records of all kinds that a test makes.
func newTestTranslator() *translator {
	cfg := config.DefaultProducer()
	limits := batchLimits{
		events: cfg.BatchEvents, bytes: int(cfg.BatchBytes), maxBytes: int(cfg.BatchMaxBytes), age: cfg.BatchAge,
	}
	none := func() (lost [schema.NumLosses]uint64) { return lost }
	batches := newBatcher(limits, schema.Header{Cluster: "c", Host: "h"}, newSpool(1<<20), none)
	wanted := attach.NewFeatures([]schema.Kind{
		schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync, schema.KindTensor,
	}, false)
	return newTranslator(process.NewTable(noLibraries{}), batches, wanted, newMetrics(), func() uint64 { return 0 })
}

const reportSymbol = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

// record is the bytes of a record, aligned as in a ring.
func record[T any](r *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func head(t testing.TB, kind uint16, symbol string) bpf.Head {
	for id := range schema.Calls {
		if schema.Calls[id].Symbol == symbol {
			return bpf.Head{Type: kind, Call: uint16(id), TID: 1 << 30, TGID: 1 << 30, ThreadStart: 1, Time: 1,
				CUDAContext: 7}
		}
	}
	t.Fatalf("no call %s", symbol)
	return bpf.Head{}
}

// FuzzHandle: no bytes of a ring cause a panic. Invalid records are counted, and the batches of the others decode.
func FuzzHandle(f *testing.F) {
	f.Add(record(&bpf.MemoryRecord{Head: head(f, bpf.RecordMemory, "cuMemAlloc_v2"), Bytes: 1 << 63, Device: -1 << 31}))
	f.Add(record(&bpf.MemoryRecord{Head: head(f, bpf.RecordMemory, "cuMemCreate"), Ptr: 1, Device: 1<<31 - 1}))
	f.Add(record(&bpf.MemoryRecord{Head: head(f, bpf.RecordMemory, "cuDevicePrimaryCtxRetain"), Ptr: 1,
		Device: 1<<31 - 1}))
	f.Add(record(&bpf.MemoryRecord{Head: head(f, bpf.RecordMemory, "cuLaunchKernel")}))
	f.Add(record(&bpf.LaunchRecord{Head: head(f, bpf.RecordLaunch, "cuLaunchKernel"), Func: ^uint64(0)}))
	f.Add(record(&bpf.LaunchRecord{Head: head(f, bpf.RecordLaunch, "cuGraphLaunch"), Func: 1}))
	f.Add(record(&bpf.CopyRecord{Head: head(f, bpf.RecordCopy, "cuMemcpy"), SrcType: 0xffff, DstType: 2}))
	f.Add(record(&bpf.ArrayRecord{Head: head(f, bpf.RecordArray, "cuArray3DCreate_v2"), Handle: 1, Width: 1 << 63,
		Levels: 1 << 31}))
	f.Add(record(&bpf.NameRecord{Head: head(f, bpf.RecordName, "cuModuleGetFunction"), NameBytes: ^uint64(0)}))
	f.Add(record(&bpf.DeviceRecord{Head: head(f, bpf.RecordDevice, "cuDeviceGetUuid"), Device: ^uint32(0)}))
	f.Add(record(&bpf.GraphRecord{Head: head(f, bpf.RecordGraph, "cuStreamEndCapture"), Graph: 1}))
	f.Add(record(&bpf.GraphRecord{Head: head(f, bpf.RecordGraph, "cuGraphAddChildGraphNode"), Made: 5, Graph: 5}))
	f.Add(record(&bpf.CoverageRecord{Head: head(f, bpf.RecordCoverage, "cuGetProcAddress_v2"), Address: 1}))
	f.Add(record(&bpf.SyncRecord{Head: head(f, bpf.RecordSync, "cuCtxSynchronize"), Elapsed: 1}))
	f.Add(record(&bpf.TensorRecord{Head: head(f, bpf.RecordTensor, reportSymbol), Bytes: -1 << 63, Device: -1}))
	f.Add(record(&bpf.TensorRecord{Head: head(f, bpf.RecordTensor, reportSymbol), Bytes: 1, Device: 1<<31 - 1}))
	f.Add(record(&bpf.ThreadRecord{Head: bpf.Head{Type: bpf.RecordThread, Call: 1}}))
	f.Add(record(&bpf.ThreadRecord{Head: bpf.Head{Type: bpf.RecordEnd}}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := newTestTranslator()
		const most = 4096
		aligned := make([]uint64, most/8)
		to := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), most)
		n := copy(to, raw)
		for range 3 { // the second time the table has its effects
			r.handle(to[:n])
		}
		if n < int(unsafe.Sizeof(bpf.Head{})) && r.metrics.malformed.Load() != 3 {
			t.Error("a record without a head is not counted")
		}
		decodable(t, r)
	})
}

// decodable closes every batch and decodes them.
func decodable(t testing.TB, r *translator) (batches []schema.Batch) {
	t.Helper()
	r.batches.closeAll()
	decoder := schema.NewDecoder()
	for _, queue := range r.batches.spool.queues {
		for _, e := range queue {
			var b schema.Batch
			if err := decoder.Decode(e.Data, &b); err != nil {
				t.Fatalf("the batch does not decode: %v", err)
			}
			batches = append(batches, b)
		}
	}
	return batches
}

// TestRecordOfAnotherBuildIsMalformed: a record whose type is not that of its call's programs counts as malformed.
func TestRecordOfAnotherBuildIsMalformed(t *testing.T) {
	r := newTestTranslator()
	var buf [4096 / 8]uint64
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 4096)
	good, bad := 0, uint64(0)
	for kind := range uint16(bpf.RecordCoverage + 3) {
		for call := range schema.Calls {
			clear(buf[:])
			*bpf.As[bpf.Head](raw) = bpf.Head{Type: kind, Call: uint16(call), TGID: 1 << 30, TID: 1 << 30}
			r.handle(raw)
			switch {
			case kind == bpf.RecordThread, kind != 0 && kind == attach.RecordTypes[call]:
				good++
			default:
				bad++
			}
		}
	}
	if got := r.metrics.malformed.Load(); got != bad || good == 0 {
		t.Errorf("%d are malformed, want %d; %d are not", got, bad, good)
	}
	decodable(t, r)
}

// TestMemoryIsBounded: a process that makes millions of handles does not exhaust the producer's memory.
func TestMemoryIsBounded(t *testing.T) {
	const many = 100_000
	name := bpf.NameRecord{Head: head(t, bpf.RecordName, "cuModuleGetFunction"), NameBytes: 2000}
	for i := range name.Name {
		name.Name[i] = 'x'
	}
	launch := bpf.LaunchRecord{Head: head(t, bpf.RecordLaunch, "cuLaunchKernel")}
	recorded := launch
	recorded.Capture = 1
	context := bpf.MemoryRecord{Head: head(t, bpf.RecordMemory, "cuCtxCreate_v2")}
	stream := bpf.MemoryRecord{Head: head(t, bpf.RecordMemory, "cuStreamCreate")}
	graph := bpf.GraphRecord{Head: head(t, bpf.RecordGraph, "cuGraphAddKernelNode_v2")}
	ready := bpf.GraphRecord{Head: head(t, bpf.RecordGraph, "cuGraphInstantiateWithFlags"), Graph: 5}
	capture := bpf.GraphRecord{Head: head(t, bpf.RecordGraph, "cuStreamBeginCapture_v2")}
	node := bpf.GraphRecord{Head: head(t, bpf.RecordGraph, "cuGraphAddMemAllocNode"), Graph: 5, Bytes: 1}
	executable := bpf.LaunchRecord{Head: head(t, bpf.RecordLaunch, "cuGraphLaunch")}
	device := bpf.DeviceRecord{Head: head(t, bpf.RecordDevice, "cuDeviceGetUuid")}
	thread := bpf.ThreadRecord{Head: bpf.Head{Type: bpf.RecordThread, TGID: 1 << 30}, ProcessStart: 1}
	tests := []struct {
		name string
		n    uint64
		next func(i uint64) []byte
	}{
		{"launched functions", many, func(i uint64) []byte { launch.Func = i; return record(&launch) }},
		{"named functions", many / 10, func(i uint64) []byte { name.Handle = i; return record(&name) }},
		{"contexts", 4 * many, func(i uint64) []byte { context.Ptr = i; return record(&context) }},
		{"contexts of any ordinal", 4 * many, func(i uint64) []byte {
			c := context
			c.Ptr, c.Device = i, int32(i)
			return record(&c)
		}},
		{"CUDA streams", 4 * many, func(i uint64) []byte { stream.Ptr = i; return record(&stream) }},
		{"graphs", many, func(i uint64) []byte { graph.Graph = i; return record(&graph) }},
		{"kernels of a graph", 4 * many, func(i uint64) []byte {
			graph.Graph, graph.Func = 5,
				i
			return record(&graph)
		}},
		{"allocations of a graph", 4 * many, func(i uint64) []byte { node.Ptr = i; return record(&node) }},
		{"captures", many, func(i uint64) []byte { capture.Capture = uint32(i); return record(&capture) }},
		{"recorded launches", 4 * many, func(i uint64) []byte { recorded.Func = i; return record(&recorded) }},
		{"executable graphs", many, func(i uint64) []byte { ready.Made = i; return record(&ready) }},
		{"launched graphs", many, func(i uint64) []byte { executable.Func = i; return record(&executable) }},
		{"ordinals", 4 * many, func(i uint64) []byte { device.Device = uint32(i); return record(&device) }},
		{"threads", 4 * many, func(i uint64) []byte {
			thread.TID, thread.ThreadStart = uint32(i), i
			return record(&thread)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit := process.MaxRemembered / 4 // a row needs a quarter of the records to exceed it
			if tt.name == "threads" {
				limit = process.MaxRemembered // threads have a bound of their own, which does not follow the limit
			}
			r := newTestTranslator()
			before := heap()
			for i := range tt.n {
				r.handle(tt.next(i + 1))
				if i%1000 == 0 { // a round
					r.known.Trim(limit)
				}
			}
			grown := heap() - before
			if most := int64(2*limit + r.batches.spool.limit); grown > most {
				t.Errorf("%d MiB are in use, want at most %d", grown>>20, most>>20)
			}
			if n := r.metrics.malformed.Load(); n != 0 {
				t.Errorf("%d records are malformed: the test shows nothing", n)
			}
			runtime.KeepAlive(r)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBatchesStayWithinTheirLimit: long names and large graphs do not make a batch larger than BatchMaxBytes.
func TestBatchesStayWithinTheirLimit(t *testing.T) {
	r := newTestTranslator()
	name := bpf.NameRecord{Head: head(t, bpf.RecordName, "cuModuleGetFunction"), NameBytes: bpf.NameBytes}
	for i := range name.Name {
		name.Name[i] = 'x'
	}
	launch := bpf.LaunchRecord{Head: head(t, bpf.RecordLaunch, "cuLaunchKernel")}
	graph := bpf.GraphRecord{Head: head(t, bpf.RecordGraph, "cuGraphAddKernelNode_v2"), Graph: 5}
	for i := range uint64(2000) {
		name.Handle, launch.Func, graph.Func = 1+i, 1+i, 1+i
		r.handle(record(&name))
		r.handle(record(&launch))
		r.handle(record(&graph))
	}
	for i := range uint64(3) {
		r.handle(record(&bpf.GraphRecord{Head: head(t, bpf.RecordGraph, "cuGraphInstantiateWithFlags"),
			Made: 1 << 20 << i, Graph: 5}))
		r.handle(record(&bpf.LaunchRecord{Head: head(t, bpf.RecordLaunch, "cuGraphLaunch"), Func: 1 << 20 << i}))
	}
	batches, launches, graphs := decodable(t, r), 0, 0
	for kind, queue := range r.batches.spool.queues {
		for _, e := range queue {
			if len(e.Data) > r.batches.limits.maxBytes {
				t.Errorf("a %s batch has %d bytes", schema.Kind(kind), len(e.Data))
			}
		}
	}
	for i := range batches {
		launches += batches[i].Events
		graphs += len(batches[i].Graphs)
	}
	dropped := int(r.batches.spool.level().droppedEvents)
	if launches+dropped != 2003 || graphs == 0 {
		t.Errorf("%d launches and %d dropped, %d graphs", launches, dropped, graphs)
	}
}

// TestBatchTooLargeForNATSIsLost: a batch that no retry can publish is counted as lost, and the next one is sent.
func TestBatchTooLargeForNATSIsLost(t *testing.T) {
	s := newSpool(1 << 20)
	s.push(outbox.Batch{Kind: schema.KindMemory, Data: make([]byte, 100), Events: 7})
	e, err := s.next(context.Background(), schema.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	s.reject(e)
	s.acked(schema.KindMemory)
	if l := s.level(); l.droppedEvents != 7 || l.batches != 0 || l.bytes != 0 {
		t.Errorf("left %+v", l)
	}
}

// TestTensors: events of interleaved threads and GPUs keep their own thread, call and GPU.
func TestTensors(t *testing.T) {
	r := newTestTranslator()
	r.begin(5)
	type place struct {
		tid    uint32
		device int32
	}
	var want []string
	places := []place{{1, 0}, {1, 0}, {2, 0}, {1, 3}, {17, 0}, {1, 0}, {1, 16}, {2, -1}, {1, 1 << 20}, {33, 0}}
	for i, at := range places {
		one := bpf.TensorRecord{Head: head(t, bpf.RecordTensor, reportSymbol), Ptr: 9, Bytes: 1 << i,
			Allocated: uint64(i), Reserved: 77, Device: at.device}
		one.TID, one.Time = at.tid, uint64(10+i)
		op, ordinal := "block_alloc", fmt.Sprint(at.device)
		if i%3 == 2 {
			one.Bytes, op = -one.Bytes, "block_free"
		}
		if at.device < 0 || at.device > 1024 {
			ordinal = "unknown"
		}
		r.handle(record(&one))
		want = append(want, fmt.Sprintln(10+i, at.tid, op, ordinal, 9, 1<<i, i, 77))
	}
	var got []string
	for _, b := range decodable(t, r) {
		for i := range b.Events {
			e := b.Tensor(i)
			ordinal := "unknown"
			if e.GPU > 0 {
				ordinal = fmt.Sprint(b.GPUs[e.GPU-1].Ordinal)
			}
			got = append(got, fmt.Sprintln(e.Time, b.Threads[e.Thread].TID, b.Calls[e.Call].Op, ordinal, e.Ptr, e.Bytes,
				e.Allocated, e.Reserved))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// BenchmarkTensors translates the blocks of one thread into encoded batches.
func BenchmarkTensors(b *testing.B) {
	r := newTestTranslator()
	one := bpf.TensorRecord{Head: head(b, bpf.RecordTensor, reportSymbol), Ptr: 1 << 40, Bytes: 512, Reserved: 1 << 30}
	raw := record(&one)
	for b.Loop() {
		one.Time += 1000
		one.Ptr, one.Bytes = 1<<40+one.Time%4096*512, -one.Bytes
		one.Allocated = one.Time % 4096 * 512
		if one.Time%(1<<20) < 1000 {
			r.begin(schema.KTime(one.Time))
		}
		r.handle(raw)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
