package tensor

import (
	"time"

	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

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
	total     uint64 // memory of the GPU in bytes; 0: unknown

	series    *trend.Series // of the blocks; nil before the first report, and after the end
	cache     *trend.Series // of reserved minus allocated bytes
	verdict   trend.Verdict // about the blocks
	cached    trend.Verdict // about the cache
	judged    schema.KTime  // end of the last window of both
	suspected uint64        // bytes of old blocks that explain the growth
	groups    []trend.Group // of verdict, while the blocks grow
	oddFree   schema.KTime  // latest free of a block that was not seen; 0: none

	// Sums over the blocks.
	index  uint32 // into the process's devices
	blocks uint64
	bytes  uint64
	sizes  sizes
}

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
	d.total = max(d.total, g.Bytes)
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
func (s *state) apply(d *device, e *schema.Tensor, tid uint32, free bool, window time.Duration) {
	if e.Time <= s.cut {
		return
	}
	if d.last == 0 {
		d.first(e, free)
	}
	if d.series == nil {
		d.begin(window, e.Time)
	}
	d.last = max(d.last, e.Time) // no block is later
	d.allocated.set(e.Allocated, e.Time)
	d.reserved.set(e.Reserved, e.Time)
	d.cache.Set(e.Time, d.cachedBytes())
	link := s.blocks.find(e.Ptr)
	switch {
	case free && link == nil:
		d.unmatched++
		d.oddFree = e.Time
		return
	case free:
		s.take(link, e.Time)
		return
	case link != nil:
		d.replaced++
		s.take(link, e.Time)
	}
	i := s.blocks.get()
	b := s.blocks.at(i)
	b.ptr, b.bytes, b.since, b.tid, b.device = e.Ptr, e.Bytes, e.Time, tid, d.index
	s.hand(d, i)
	d.series.Add(b.since, b.bytes)
}

// begin begins the trends.
func (d *device) begin(window time.Duration, at schema.KTime) {
	d.series, d.cache = trend.NewSeries(window, at), trend.NewSeries(window, at)
	d.verdict, d.cached, d.judged, d.suspected, d.groups = trend.Verdict{}, trend.Verdict{}, 0, 0, nil
}

// cachedBytes returns the bytes that the allocator holds without a block in them.
func (d *device) cachedBytes() uint64 { return d.reserved.now - min(d.reserved.now, d.allocated.now) }

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

// take removes the block behind a link of the index at a time.
func (s *state) take(link *uint32, at schema.KTime) {
	i := *link
	b := s.blocks.at(i)
	d := s.devices[b.device]
	d.series.Remove(at, b.since, b.bytes)
	d.blocks--
	d.bytes -= b.bytes
	s.blocks.remove(link)
	s.blocks.unlink(d.sizes.of(b.bytes), i)
	s.blocks.put(i)
}

// exec ends the image that ran until a time. Reports after that time are of the next image and may have come already.
func (s *state) exec(at schema.KTime, window time.Duration) {
	s.cut = max(s.cut, at)
	for _, d := range s.devices {
		for i := range d.sizes {
			for next := d.sizes[i]; next != 0; {
				b := s.blocks.at(next)
				if next = b.next; b.since <= at {
					s.take(s.blocks.find(b.ptr), at)
				}
			}
		}
		if d.last <= at {
			*d = device{ordinal: d.ordinal, uuid: d.uuid, inferred: d.inferred, index: d.index, sizes: d.sizes,
				total: d.total}
			continue
		}
		if d.series != nil {
			s.beginAgain(d, window)
		}
		d.allocated.after(at, d.last)
		d.reserved.after(at, d.last)
	}
}

// beginAgain begins the trends of an image whose first reports have come already.
func (s *state) beginAgain(d *device, window time.Duration) {
	d.begin(window, d.last)
	d.cache.Restore(d.last, d.cachedBytes())
	for _, head := range d.sizes {
		for i := head; i != 0; i = s.blocks.at(i).next {
			d.series.Restore(s.blocks.at(i).since, s.blocks.at(i).bytes)
		}
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
		d.sizes, d.series, d.cache = nil, nil, nil
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
