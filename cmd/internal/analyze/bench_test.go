package analyze

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// BenchmarkAnalyze reads a recording of a process that holds 1,000 allocations and replaces one with each pair of
// calls. GPUTAP_BENCH_EVENTS=100000000 is the size that the budget names.
func BenchmarkAnalyze(b *testing.B) {
	events := 10_000_000
	if os.Getenv("GPUTAP_BENCH_EVENTS") == "100000000" {
		events = 100_000_000
	}
	path := filepath.Join(b.TempDir(), "large.gputap")
	writeLarge(b, path, events)
	for _, args := range [][]string{{"usage", path, "-o", "json", "--step", "1s"}, {"watermark", path, "-o", "json"}} {
		b.Run(args[0], func(b *testing.B) {
			var most uint64
			for b.Loop() {
				p := &app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
				cmd := Command(p)
				cmd.SetArgs(args)
				if err := cmd.ExecuteContext(b.Context()); err != nil {
					b.Fatal(err)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapSys)
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
			b.ReportMetric(float64(most)/(1<<20), "MiB-heap")
		})
	}
}

func writeLarge(b *testing.B, path string, events int) {
	b.Helper()
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w, err := recording.NewWriter(file)
	if err != nil {
		b.Fatal(err)
	}
	stream := recording.Stream{Name: "GPUTAP_EV_000", Created: wallStart, State: recording.KnowledgeComplete}
	if err := w.AddStreams(recording.Selection{}, []recording.Stream{stream}); err != nil {
		b.Fatal(err)
	}
	builder, now := schema.NewBuilder(schema.KindMemory), schema.KTime(time.Second)
	header := schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, ClockOffset: wallStart.UnixNano()}
	const live, batch = 1000, 4096
	for written := 0; written < events; {
		builder.Reset()
		thread := builder.Thread(schema.Thread{Process: builder.Process(schema.Process{PID: 7, Start: 1, Comm: "p"}),
			TID: 7, Comm: "p"})
		gpu := builder.GPU(schema.GPU{UUID: "GPU-0"})
		alloc := builder.Call(schema.CallRef{Symbol: "cuMemAlloc_v2", Op: schema.OpAlloc, Class: schema.ClassDevice})
		free := builder.Call(schema.CallRef{Symbol: "cuMemFree_v2", Op: schema.OpFree})
		for range batch / 2 {
			ptr := uint64(written/2%live+1) << 21
			if written/2 >= live {
				builder.AddMemory(&schema.Memory{Time: now, Duration: 300, Thread: thread, Call: free, GPU: gpu,
					Ptr: ptr})
			}
			now += 1000
			builder.AddMemory(&schema.Memory{Time: now, Duration: 300, Thread: thread, Call: alloc, GPU: gpu, Ptr: ptr,
				Bytes: uint64(1+written%7) << 20})
			now += 1000
			written += 2
		}
		header.Seq++
		err := w.Append(&recording.Message{Sequence: header.Seq, Stored: header.Wall(now),
			Subject: schema.Subject(0, "c", "h", schema.KindMemory), Data: bytes.Clone(builder.Encode(&header))})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
