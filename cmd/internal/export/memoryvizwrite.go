package export

import (
	"slices"
	"strings"
)

// vizWriter writes a snapshot. Its keys are those of torch.cuda.memory._snapshot().
type vizWriter struct {
	*pickler
	frames []frame
	stacks map[uint32]uint32 // frames that were written: numbers of the memo
}

func (v *memoryViz) write() error {
	w := vizWriter{newPickler(v.out), v.frames, map[uint32]uint32{}}
	devices := 0
	if n := len(v.actions); n > 0 {
		devices = int(v.actions[n-1].device) + 1
	}
	states := make([]deviceState, devices)
	w.dict(func() {
		w.text("device_traces")
		w.list()
		rest := v.actions
		for device := range states {
			n := slices.IndexFunc(rest, func(a action) bool { return int(a.device) > device })
			if n < 0 {
				n = len(rest)
			}
			w.item(func() { w.trace(&states[device], rest[:n]) })
			v.overlaps += states[device].overlaps
			rest = rest[n:]
		}
		w.text("segments")
		w.list()
		for device := range states {
			for _, one := range states[device].segments.merged() {
				w.item(func() { w.segment(device, &one, states[device].blocks) })
			}
		}
		w.text("allocator_settings")
		w.dict(func() {})
		w.text("external_annotations")
		w.list()
	})
	return w.end()
}

// trace writes the actions of one device and leaves its state at their end.
func (w *vizWriter) trace(s *deviceState, actions []action) {
	w.list()
	s.write = func(name string, a *area, at int64) {
		w.item(func() {
			w.dict(func() {
				w.text("action")
				w.text(name)
				w.named("addr", a.addr)
				w.named("size", a.bytes)
				w.named("stream", a.stream)
				w.named("time_us", uint64(at/1000))
				w.stack(a.frame)
			})
		})
	}
	for i := range actions {
		s.apply(&actions[i])
	}
}

func (w *vizWriter) named(key string, n uint64) {
	w.text(key)
	w.number(n)
}

// stack writes the call stack of an area. Its call is the only frame if the stack is unknown.
func (w *vizWriter) stack(i uint32) {
	w.text("frames")
	if n, written := w.stacks[i]; written {
		w.get(n)
		return
	}
	f := &w.frames[i]
	w.list()
	for text := range strings.Lines(f.stack) {
		function, module := splitFrame(strings.TrimSuffix(text, "\n"))
		w.frame(module, 0, function)
	}
	if f.stack == "" {
		w.frame("thread "+f.thread, uint64(f.tid), f.symbol)
	}
	w.stacks[i] = w.put()
}

func (w *vizWriter) frame(file string, line uint64, name string) {
	w.item(func() {
		w.dict(func() {
			w.text("filename")
			w.text(file)
			w.named("line", line)
			w.text("name")
			w.text(name)
		})
	})
}

// smallSegment is the largest segment that PyTorch uses for its small blocks.
const smallSegment = 2 << 20

func (w *vizWriter) segment(device int, one *area, blocks areas) {
	var inside areas
	allocated := uint64(0)
	for i := blocks.from(one.addr); i < len(blocks) && blocks[i].addr < one.end(); i++ {
		inside = append(inside, blocks[i])
		allocated += blocks[i].bytes
	}
	w.dict(func() {
		w.named("device", uint64(device))
		w.named("address", one.addr)
		w.named("total_size", one.bytes)
		w.named("allocated_size", allocated)
		w.named("active_size", allocated)
		w.named("requested_size", allocated)
		w.named("stream", one.stream)
		w.text("segment_type")
		if one.bytes <= smallSegment && !one.vmm {
			w.text("small")
		} else {
			w.text("large")
		}
		w.text("segment_pool_id")
		w.pair(0, 0)
		w.text("is_expandable")
		w.truth(one.vmm)
		w.stack(one.frame)
		w.text("blocks")
		w.blocks(one, inside)
	})
}

// blocks writes the blocks of a segment, and what is free between them.
func (w *vizWriter) blocks(segment *area, inside areas) {
	w.list()
	at := segment.addr
	for _, b := range inside {
		w.gap(at, b.addr)
		w.item(func() { w.block(&b, "active_allocated") })
		at = b.end()
	}
	w.gap(at, segment.end())
}

func (w *vizWriter) gap(from, to uint64) {
	if from < to {
		w.item(func() { w.block(&area{addr: from, bytes: to - from}, "inactive") })
	}
}

// block writes a block. As in a snapshot of PyTorch, nobody requested a block that is inactive.
func (w *vizWriter) block(b *area, state string) {
	w.dict(func() {
		w.named("address", b.addr)
		w.named("size", b.bytes)
		w.text("state")
		w.text(state)
		if state == "inactive" {
			w.named("requested_size", 0)
			w.text("frames")
			w.list()
			return
		}
		w.named("requested_size", b.bytes)
		w.stack(b.frame)
	})
}
