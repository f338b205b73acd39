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
	for kind, budget := range map[Kind]float64{KindMemory: 22, KindLaunch: 16} {
		if got := float64(bytes[kind]) / float64(events[kind]); got > budget {
			t.Errorf("%s: %.1f bytes an event, budget %.0f", kind, got, budget)
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
					batch.columns[id].Expand(column[:batch.Events])
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
