package analysis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestTorchReceiver takes reports of two GPUs. Their curves were computed by hand: tensors are what is allocated, the
// cache is the rest of what is reserved, and the sum of both is never above what is reserved.
func TestTorchReceiver(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "h")
	p := h.Process(7, 1, "train")
	b := schema.NewBuilder(schema.KindTensor)
	thread := b.Thread(schema.Thread{Process: b.Process(p.Process), TID: 7})
	call := b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc})
	report := func(at schema.KTime, gpu string, allocated, reserved uint64) {
		b.AddTensor(&schema.Tensor{Time: at, Thread: thread, Call: call, Allocated: allocated, Reserved: reserved,
			GPU: b.GPU(schema.GPU{UUID: gpu, Ordinal: uint32(gpu[len(gpu)-1] - '0')})})
	}
	report(10, "GPU-0", 5, 20)
	report(20, "GPU-1", 1, 2)
	report(30, "GPU-0", 15, 20) // a block of the cache
	report(40, "GPU-0", 15, 32)
	report(50, "GPU-0", 3, 32)
	report(60, "GPU-0", 3, 4) // the cache was emptied
	header := h.Header
	header.Seq = 1
	message := b.Encode(&header)
	j := NewJournal(t.TempDir())
	defer j.Close()
	j.TorchReceiver()(consumertest.Decode(t, message))
	list, err := j.Processes()
	if err != nil || len(list) != 1 || len(list[0].GPUs) != 2 {
		t.Fatalf("%d processes, %v", len(list), err)
	}
	curve := func(gpu int, names ...string) (points []string) {
		zero := header.Wall(0)
		keep := func(g *Group) bool { return g.GPU == gpu && slices.Contains(names, g.Name) }
		if err := list[0].Usage(keep, func(at time.Time, bytes uint64) bool {
			points = append(points, fmt.Sprintf("%d:%d", at.Sub(zero), bytes))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return points
	}
	for _, tt := range []struct {
		gpu   int
		names []string
		want  []string
	}{
		{0, []string{Tensors}, []string{"10:5", "30:15", "50:3"}},
		{0, []string{Cached}, []string{"10:15", "30:5", "40:17", "50:29", "60:1"}},
		{0, []string{Tensors, Cached}, []string{"10:15", "10:20", "30:10", "30:20", "40:32", "50:20", "50:32", "60:4"}},
		{1, []string{Tensors, Cached}, []string{"20:1", "20:2"}},
	} {
		if got := curve(tt.gpu, tt.names...); !slices.Equal(got, tt.want) {
			t.Errorf("GPU %d, %v: got %v, want %v", tt.gpu, tt.names, got, tt.want)
		}
	}
}
