package tensor

import "github.com/gputap/gputap/schema"

const (
	noGPU      = int32(-1) // an unknown ordinal
	maxDevices = 64
	maxThreads = 1024 // of one process whose names are kept
)

// state is the allocator of one process.
type state struct {
	devices []*device // in order of first use
	blocks  blocks
	comms   map[uint32]string // names of threads
	run     uint64            // of the producer, in its last tensor batch
	cut     schema.KTime      // of the last exec: earlier reports belong to the image before
	ended   schema.KTime      // 0 while it runs
	gap     bool              // reports may have been lost while it ran

	released bool // it ended and its blocks are dropped
}

// device is the allocator of one process on one GPU.
type device struct {
	ordinal   int32 // in the process's numbering; noGPU: unknown
	uuid      string
	inferred  bool
	last      schema.KTime // time of the last report
	allocated level
	reserved  level
	early     uint64 // bytes of blocks that were handed out before the first report
	unmatched uint64 // frees of blocks that were not seen
	replaced  uint64 // allocations at the address of a live block

	// Sums over the blocks.
	index  uint32 // into the process's devices
	blocks uint64
	bytes  uint64
	sizes  sizes
}

// cached returns the bytes that the allocator holds without a block in them.
func (d *device) cached() uint64 { return d.reserved.now - min(d.reserved.now, d.allocated.now) }

// level is an amount over time.
type level struct {
	now, peak uint64
	peakAt    schema.KTime
}

func (l *level) set(v uint64, at schema.KTime) {
	l.now = v
	if v > l.peak {
		l.peak, l.peakAt = v, at
	}
}

// on returns the allocator on a GPU of a batch; gpu is 0 if unknown, else 1 + an index into b.GPUs.
func (s *state) on(b *schema.Batch, gpu uint32) *device {
	if gpu == 0 {
		return s.device(noGPU)
	}
	g := &b.GPUs[gpu-1]
	d := s.device(int32(min(g.Ordinal, 1<<30)))
	if g.UUID != "" && d.ordinal != noGPU {
		d.uuid, d.inferred = g.UUID, g.Inferred
	}
	return d
}

func (s *state) device(ordinal int32) *device {
	for _, d := range s.devices {
		if d.ordinal == ordinal {
			return d
		}
	}
	if len(s.devices) >= maxDevices-1 && ordinal != noGPU {
		return s.device(noGPU)
	}
	d := &device{ordinal: ordinal, index: uint32(len(s.devices))}
	s.devices = append(s.devices, d)
	return d
}

// name notes the name of a thread. When there are too many, all earlier ones are dropped: a server may start a thread
// for each request.
func (s *state) name(t *schema.Thread) {
	if s.comms[t.TID] == t.Comm {
		return
	}
	if s.comms == nil || len(s.comms) >= maxThreads {
		s.comms = map[uint32]string{}
	}
	s.comms[t.TID] = t.Comm
}

// apply takes one report.
func (s *state) apply(d *device, e *schema.Tensor, tid uint32, free bool) {
	if e.Time <= s.cut {
		return
	}
	if d.last == 0 {
		d.first(e, free)
	}
	d.last = e.Time
	d.allocated.set(e.Allocated, e.Time)
	d.reserved.set(e.Reserved, e.Time)
	link := s.blocks.find(e.Ptr)
	switch {
	case free && link == nil:
		d.unmatched++
		return
	case free:
		s.take(link)
		return
	case link != nil:
		d.replaced++
		s.take(link)
	}
	i := s.blocks.get()
	b := s.blocks.at(i)
	b.ptr, b.bytes, b.since, b.tid, b.device = e.Ptr, e.Bytes, e.Time, tid, d.index
	s.hand(d, i)
}

// first sets the bytes of the blocks that were handed out before the first report.
func (d *device) first(e *schema.Tensor, free bool) {
	d.early = e.Allocated - min(e.Allocated, e.Bytes)
	if free {
		d.early = e.Allocated + e.Bytes
		d.allocated.set(d.early, e.Time)
	}
}

// hand adds a block to the index and to the list of its size class.
func (s *state) hand(d *device, i uint32) {
	b := s.blocks.at(i)
	d.blocks++
	d.bytes += b.bytes
	s.blocks.insert(i)
	s.blocks.push(d.sizes.of(b.bytes), i)
}

// take removes the block behind a link of the index.
func (s *state) take(link *uint32) {
	i := *link
	b := s.blocks.at(i)
	d := s.devices[b.device]
	d.blocks--
	d.bytes -= b.bytes
	s.blocks.remove(link)
	s.blocks.unlink(d.sizes.of(b.bytes), i)
	s.blocks.put(i)
}

// exec ends the image that ran until a time. Reports after that time are of the next image and may have come already.
func (s *state) exec(at schema.KTime) {
	s.cut = max(s.cut, at)
	for _, d := range s.devices {
		for i := range d.sizes {
			for next := d.sizes[i]; next != 0; {
				b := s.blocks.at(next)
				if next = b.next; b.since <= at {
					s.take(s.blocks.find(b.ptr))
				}
			}
		}
		if d.last <= at {
			*d = device{ordinal: d.ordinal, uuid: d.uuid, inferred: d.inferred, index: d.index, sizes: d.sizes}
			continue
		}
		d.allocated.after(at, d.last)
		d.reserved.after(at, d.last)
	}
}

// after drops a peak that was reached before a time.
func (l *level) after(at, last schema.KTime) {
	if l.peakAt <= at {
		l.peak, l.peakAt = l.now, last
	}
}

// release drops the blocks of a process that ended. Their count and bytes stay.
func (s *state) release() {
	s.released, s.blocks, s.comms = true, blocks{}, nil
	for _, d := range s.devices {
		d.sizes = nil
	}
}

// late reports whether blocks were handed out before the first report.
func (s *state) late() bool {
	for _, d := range s.devices {
		if d.early > 0 {
			return true
		}
	}
	return false
}
