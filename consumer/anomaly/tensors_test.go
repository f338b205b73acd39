package anomaly

import (
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// torch adds reports of PyTorch's allocator, one every millisecond. The last ones are totals in GiB.
func (w *world) torch(p *consumertest.Process, at float64, totals ...[2]uint64) {
	b := schema.NewBuilder(schema.KindTensor)
	for i, t := range totals {
		e := schema.Tensor{Time: ktime(at) + schema.KTime(i)*1e6, Thread: threadOf(b, p), Ptr: 1 << 40, Bytes: 512,
			Call: b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc}), Allocated: t[0] * gib,
			Reserved: t[1] * gib}
		if p.GPU != nil {
			e.GPU = b.GPU(*p.GPU)
		}
		b.AddTensor(&e)
	}
	w.send(b, schema.KindTensor)
}

// TestOutOfMemoryIsToldApart: by fragmentation, if the allocator had more free memory than was requested, or by use.
func TestOutOfMemoryIsToldApart(t *testing.T) {
	t.Parallel()
	const fragmented, used = "Fragmentation: PyTorch had ", "Out of memory by use: PyTorch had "
	for _, row := range []struct {
		name string
		run  func(w *world, p *consumertest.Process)
		want string
	}{
		{"fragmented", func(w *world, p *consumertest.Process) {
			w.torch(p, 9, [2]uint64{70, 76}, [2]uint64{50, 76})
			w.fail(p, 20*gib, 10)
		}, fragmented + "50 GiB allocated and 76 GiB reserved, so 26 GiB cached, " +
			"which is enough for the 20 GiB requested"},
		{"exactly as much is cached", func(w *world, p *consumertest.Process) {
			w.torch(p, 9, [2]uint64{56, 76})
			w.fail(p, 20*gib, 10)
		}, fragmented + "56 GiB allocated"},
		{"in use", func(w *world, p *consumertest.Process) {
			w.torch(p, 9, [2]uint64{10, 76}, [2]uint64{75, 76})
			w.fail(p, 20*gib, 10)
		}, used + "75 GiB allocated and 76 GiB reserved, so 1 GiB cached, less than the 20 GiB requested"},
		{"it gave its cache back before it tried again", func(w *world, p *consumertest.Process) {
			w.torch(p, 9, [2]uint64{50, 76})
			w.alloc(p, 50*gib, 8)
			cache := w.alloc(p, 26*gib, 8)
			w.fail(p, 40*gib, 10)
			p.Free(1, cache, ktime(10.1), 1)
			w.fail(p, 40*gib, 10.2)
		}, used + "50 GiB allocated and 50 GiB reserved, so 0 B cached"},
		{"expandable segments request it in pieces", func(w *world, p *consumertest.Process) {
			w.torch(p, 9, [2]uint64{75, 76})
			p.Fail("cuMemCreate", p.PID, 2, 20*mib, ktime(10))
		}, used + "75 GiB allocated and 76 GiB reserved, so 1 GiB cached. With expandable segments, PyTorch requests " +
			"memory in pieces, so the tensor may be far larger than 20 MiB. Request less"},
		{"tensors are freed after it failed", func(w *world, p *consumertest.Process) {
			w.fail(p, 20*gib, 10)
			w.flush()
			w.torch(p, 9.999, [2]uint64{75, 76}, [2]uint64{75, 76}, [2]uint64{10, 76})
		}, used + "75 GiB allocated"},
		{"tensors of another GPU", func(w *world, p *consumertest.Process) {
			of := *p.GPU
			p.GPU = &schema.GPU{UUID: "GPU-2", Ordinal: 1}
			w.torch(p, 9, [2]uint64{10, 76})
			p.GPU = &of
			w.fail(p, 20*gib, 10)
		}, "Free memory on that GPU, or request less."},
		{"without PyTorch", func(w *world, p *consumertest.Process) { w.fail(p, 20*gib, 10) },
			"Free memory on that GPU, or request less."},
	} {
		for _, disturb := range []bool{false, true} {
			w := newWorld(t, everything)
			w.disturb = disturb
			row.run(w, w.process(42, "train"))
			w.tick(10, 40)
			w.want(outOf)
			if len(w.changes) > 0 && !strings.Contains(w.changes[0].Message, row.want) {
				t.Errorf("%s: %q lacks %q", row.name, w.changes[0].Message, row.want)
			}
		}
	}
}

// tensorBatch returns a batch of 4,096 reports of 2 threads.
func tensorBatch() []byte {
	b := schema.NewBuilder(schema.KindTensor)
	p := b.Process(schema.Process{PID: 1, Comm: "train"})
	threads := []uint32{b.Thread(schema.Thread{Process: p, TID: 1}), b.Thread(schema.Thread{Process: p, TID: 2})}
	gpu := b.GPU(schema.GPU{UUID: "a"})
	call := b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc})
	for i := range uint64(4096) {
		b.AddTensor(&schema.Tensor{Time: schema.KTime(1000 * i), Thread: threads[i/64%2], GPU: gpu, Call: call,
			Ptr: i * 7919 % 4096 << 12, Bytes: 512 * (1 + i%1000), Allocated: 1<<30 + i*i, Reserved: 1 << 34})
	}
	return b.Encode(&schema.Header{Host: "h", BootID: "boot"})
}
