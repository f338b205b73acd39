//go:build bpf

package producer

import (
	"context"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// uprobes is how capture attaches.
var uprobes = config.UprobesAuto

// TestPerfEvents: events are the same with perf-event uprobes as with uprobe_multi.
func TestPerfEvents(t *testing.T) {
	uprobes = config.UprobesPerf
	defer func() { uprobes = config.UprobesAuto }()
	t.Run("launches", TestLaunches)
	t.Run("memory", TestMemory)
}

// capture runs the workload under a producer and returns the published batches.
func capture(t *testing.T, features []string, args ...string) [][]byte {
	producertest.RequireBPF(t)
	js := newBus(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.Libraries = "test", features, []string{producertest.Built(t, "stub/libcuda.so.1")}
	cfg.Uprobes = uprobes
	p, err := New(cfg, "test", js, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	if out, err := exec.Command(producertest.Built(t, "workload"), args...).CombinedOutput(); err != nil {
		t.Errorf("workload %v: %v: %s", args, err, out)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return stored(t, js)
}

func stored(t testing.TB, js jetstream.JetStream) [][]byte {
	jsStream, err := js.Stream(context.Background(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for seq := uint64(1); seq <= jsStream.CachedInfo().State.LastSeq; seq++ {
		m, err := jsStream.GetMsg(context.Background(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m.Data)
	}
	return all
}

// each decodes the batches of one kind, and fails on a loss.
func each(t *testing.T, messages [][]byte, kind schema.Kind, visit func(*schema.Batch)) {
	t.Helper()
	var b schema.Batch
	decoder := schema.NewDecoder()
	for _, data := range messages {
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		if b.TotalLost() != 0 {
			t.Errorf("%s batch %d reports losses: %v", b.Kind, b.Seq, b.Lost)
		}
		if b.Kind == kind {
			visit(&b)
		}
	}
}

var all = []string{"memory", "launch", "copy"}

const kib = 1 << 10

// TestCopies: each copy of the workload has a size of its own, which identifies the call.
func TestCopies(t *testing.T) {
	want := map[string]schema.Copy{
		"cuMemcpyHtoD_v2": {Bytes: 4 * kib}, "cuMemcpyHtoD_v2_ptds": {Bytes: 8 * kib},
		"cuMemcpyDtoH_v2": {Bytes: 12 * kib}, "cuMemcpyDtoH_v2_ptds": {Bytes: 16 * kib},
		"cuMemcpyDtoD_v2": {Bytes: 20 * kib}, "cuMemcpyDtoD_v2_ptds": {Bytes: 24 * kib},
		"cuMemcpyHtoDAsync_v2": {Bytes: 28 * kib}, "cuMemcpyHtoDAsync_v2_ptsz": {Bytes: 32 * kib},
		"cuMemcpyDtoHAsync_v2": {Bytes: 36 * kib}, "cuMemcpyDtoHAsync_v2_ptsz": {Bytes: 40 * kib},
		"cuMemcpyDtoDAsync_v2": {Bytes: 44 * kib}, "cuMemcpyDtoDAsync_v2_ptsz": {Bytes: 48 * kib},
	}
	each(t, capture(t, all, "every"), schema.KindCopy, func(b *schema.Batch) {
		for i := range b.Events {
			e := b.Copy(i)
			symbol := b.Calls[e.Call].Symbol
			expected, ok := want[symbol]
			if !ok {
				t.Errorf("%s of %d bytes came unexpectedly or twice", symbol, e.Bytes)
				continue
			}
			delete(want, symbol)
			if e.Bytes != expected.Bytes || e.Result != 0 {
				t.Errorf("%s: %d bytes and result %d, want %d and 0", symbol, e.Bytes, e.Result, expected.Bytes)
			}
			if !strings.Contains(symbol, b.Calls[e.Call].Direction.String()) {
				t.Errorf("%s has direction %s", symbol, b.Calls[e.Call].Direction)
			}
			if e.GPU == 0 || b.GPUs[e.GPU-1].UUID == "" {
				t.Errorf("%s: GPU unknown", symbol)
			}
			if e.Dst == 0 || e.Src == 0 {
				t.Errorf("%s: destination %#x, source %#x", symbol, e.Dst, e.Src)
			}
		}
	})
	if len(want) != 0 {
		t.Errorf("never seen: %v", slices.Sorted(maps.Keys(want)))
	}
}

// TestLaunches: the numbers in each launch shape identify the arguments.
func TestLaunches(t *testing.T) {
	const add, mul = "_Z9vectorAddPKfS0_Pfi", "_Z9vectorMulPKfS0_Pfi"
	type launch struct {
		symbol, name string
		shape        schema.LaunchShape
		stream       uint64
	}
	plain := schema.LaunchShape{Grid: [3]uint32{1, 2, 3}, Block: [3]uint32{4, 5, 6}, SharedBytes: 512}
	ex := schema.LaunchShape{Grid: [3]uint32{7, 8, 9}, Block: [3]uint32{10, 11, 12}, SharedBytes: 2048}
	want := map[launch]int{
		{"cuLaunchKernel", add, plain, 1}: 1, {"cuLaunchKernel_ptsz", mul, plain, 0}: 1,
		{"cuLaunchKernelEx", add, ex, 2}: 1, {"cuLaunchKernelEx_ptsz", mul, ex, 2}: 1,
		{"cuGraphLaunch", "", schema.LaunchShape{}, 0}: 1,
		// refused by the driver for its null handle: a launch is seen when it begins
		{"cuLaunchKernel", "", schema.LaunchShape{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}, 0}: 1,
	}
	got := map[launch]int{}
	each(t, capture(t, all, "every"), schema.KindLaunch, func(b *schema.Batch) {
		for i := range b.Events {
			e := b.Launch(i)
			s := b.Shapes[e.Shape]
			l := launch{b.Calls[s.Call].Symbol, b.Funcs[s.Func].Name, s, b.CUDAStreams[e.CUDAStream]}
			l.shape.Call, l.shape.Func = 0, 0
			got[l]++
		}
	})
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// TestMemory: the order and the arguments of expandable segments, whose truth is the workload's own text.
func TestMemory(t *testing.T) {
	type event struct {
		op    schema.Op
		bytes uint64
	}
	var got []event
	handles := map[uint64]uint64{}
	each(t, capture(t, []string{"memory"}, "expandable"), schema.KindMemory, func(b *schema.Batch) {
		for i := range b.Events {
			e := b.Memory(i)
			op := b.Calls[e.Call].Op
			got = append(got, event{op, e.Bytes})
			switch op {
			case schema.OpCreate:
				handles[e.Ptr] = e.Bytes
				if e.GPU == 0 || b.GPUs[e.GPU-1].Ordinal != 0 {
					t.Error("a created handle is on no GPU")
				}
			case schema.OpMap:
				if handles[e.Aux] != e.Bytes {
					t.Errorf("maps %d bytes of handle %#x, which has %d", e.Bytes, e.Aux, handles[e.Aux])
				}
			case schema.OpRelease:
				if handles[e.Ptr] == 0 {
					t.Errorf("releases the unknown handle %#x", e.Ptr)
				}
			}
		}
	})
	const mib = 1 << 20
	want := []event{{schema.OpContextRetain, 0}, {schema.OpReserve, 1024 * mib}}
	sizes := []uint64{2 * mib, 20 * mib, 20 * mib, 2 * mib, 20 * mib}
	for _, bytes := range sizes {
		want = append(want, event{schema.OpCreate, bytes}, event{schema.OpMap, bytes}, event{schema.OpAccess, bytes})
	}
	for _, bytes := range sizes[:2] {
		want = append(want, event{schema.OpUnmap, bytes}, event{schema.OpRelease, 0})
	}
	want = append(want, event{schema.OpRelease, 0}, event{schema.OpUnmap, 20 * mib}, event{schema.OpExit, 0})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// TestFeaturesAreOptIn: without a feature there is no batch of its kind.
func TestFeaturesAreOptIn(t *testing.T) {
	messages := capture(t, []string{"copy"}, "every")
	for kind, want := range map[schema.Kind]bool{schema.KindCopy: true, schema.KindLaunch: false} {
		seen := false
		each(t, messages, kind, func(b *schema.Batch) { seen = seen || b.Events > 0 })
		if seen != want {
			t.Errorf("%s batches: %v, want %v", kind, seen, want)
		}
	}
}

// TestSeqHasNoHoles: the batches of each kind have the seqs 1, 2, 3, …
func TestSeqHasNoHoles(t *testing.T) {
	messages := capture(t, all, "storm", "--seconds", "1")
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindHost} {
		last := uint64(0)
		each(t, messages, kind, func(b *schema.Batch) {
			if b.Seq != last+1 {
				t.Fatalf("%s batch %d after %d", b.Kind, b.Seq, last)
			}
			last = b.Seq
		})
		if last < 2 {
			t.Errorf("only %d %s batches: the test shows nothing", last, kind)
		}
	}
}
