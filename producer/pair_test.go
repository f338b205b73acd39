package producer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/attach"
	"github.com/gputap/gputap/schema"
)

// pairedTexts describes the events of pairs, and the copies, in order of time.
func pairedTexts(t testing.TB, r *translator) (texts []string) {
	t.Helper()
	for _, b := range decodable(t, r) {
		for i := range b.Events {
			switch b.Kind {
			case schema.KindCopy:
				c := b.Copy(i)
				call := b.Calls[c.Call]
				texts = append(texts, fmt.Sprintf("%03d %s %s %s q%d %dB %d %s", c.Time, call.Symbol, call.Op,
					call.Direction, b.CUDAStreams[c.CUDAStream], c.Bytes, c.Duration, c.HostMem))
			case schema.KindSync:
				if s := b.Sync(i); b.Calls[s.Call].Op == schema.OpResume {
					texts = append(texts, fmt.Sprintf("%03d %s resume q%d %d %d", s.Time, b.Calls[s.Call].Symbol,
						b.CUDAStreams[s.CUDAStream], s.Duration, b.Threads[s.Thread].TID))
				}
			}
		}
	}
	slices.Sort(texts)
	return texts
}

// TestPairsBecomeEvents: PyTorch's x.to("cuda") from pageable and from pinned memory, a kernel, and a wait.
func TestPairsBecomeEvents(t *testing.T) {
	of := func(kind uint16, symbol string, at uint64) bpf.Head {
		h := head(t, kind, symbol)
		h.Time = at
		return h
	}
	const q = 0x5540
	copied := func(symbol string, at, src, bytes uint64) []byte {
		return record(&bpf.CopyRecord{Head: of(bpf.RecordCopy, symbol, at), Duration: 3, Dst: 1 << 40, Src: src,
			Bytes: bytes, CUDAStream: q})
	}
	launch := func(symbol string, at uint64, capture uint32) []byte {
		l := bpf.LaunchRecord{Head: of(bpf.RecordLaunch, symbol, at), Func: 1 << 20, CUDAStream: q}
		l.Capture = capture
		return record(&l)
	}
	wait := func(symbol string, at, d uint64, result uint32) []byte {
		return record(&bpf.SyncRecord{Head: of(bpf.RecordSync, symbol, at), Duration: d, CUDAStream: q, Result: result})
	}
	records := [][]byte{
		record(&bpf.MemoryRecord{Head: of(bpf.RecordMemory, "cuMemHostAlloc", 10), Ptr: 0x1000, Bytes: 0x1000,
			Device: -1}),
		copied("cuMemcpyHtoDAsync_v2", 100, 0x900, 4096),
		wait("cuStreamSynchronize", 105, 20, 0),
		launch("cuLaunchKernel", 130, 1), // recorded into a graph
		launch("cuLaunchKernel", 140, 0),
		launch("cuLaunchKernel", 141, 0), // by the cache
		copied("cuMemcpyHtoDAsync_v2", 150, 0x1800, 512),
		wait("cuStreamSynchronize", 155, 1, 700),
		wait("cuCtxSynchronize", 160, 40, 0),
		launch("cuGraphLaunch", 203, 0),
		wait("cuEventSynchronize", 300, 9, 0),
		launch("cuLaunchKernel", 310, 0),
	}
	want := []string{
		"100 cuMemcpyHtoDAsync_v2 copied HtoD q21824 4096B 25 pageable",
		"100 cuMemcpyHtoDAsync_v2 copy_async HtoD q21824 4096B 3 pageable",
		"140 cuLaunchKernel resume q21824 15 1073741824",
		"150 cuMemcpyHtoDAsync_v2 copied_behind HtoD q21824 512B 50 pinned",
		"150 cuMemcpyHtoDAsync_v2 copy_async HtoD q21824 512B 3 pinned",
		"203 cuGraphLaunch resume q21824 3 1073741824",
		"310 cuLaunchKernel resume q21824 1 1073741824",
	}
	r := newTestTranslator()
	for _, raw := range records {
		r.handle(raw)
	}
	r.now = 400
	r.finish()
	if got := pairedTexts(t, r); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}

	t.Run("without sync", func(t *testing.T) {
		full := newTestTranslator()
		wanted := attach.NewFeatures([]schema.Kind{schema.KindLaunch, schema.KindCopy}, false)
		r := newTranslator(full.known, full.batches, wanted, newMetrics(), nil)
		for _, raw := range records {
			r.handle(raw)
		}
		r.now = 400
		r.finish()
		want := []string{
			"100 cuMemcpyHtoDAsync_v2 copy_async HtoD q21824 4096B 3 unknown",
			"150 cuMemcpyHtoDAsync_v2 copy_async HtoD q21824 512B 3 unknown",
		}
		if got := pairedTexts(t, r); !slices.Equal(got, want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	})
}
