package pairing

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// Process is what pairing remembers of one process. The zero Process is ready.
type Process struct {
	streams map[streamKey]*Stream
	last    *Stream // most calls work in the same CUDA stream as the call before
	waits   []contextWait
	queued  bool
	full    bool // no CUDA stream is idle in this round
}

type contextWait struct{ context, from, to uint64 }

// streamKey identifies a CUDA stream. The default CUDA streams belong to a context; one of them also to a thread.
type streamKey struct {
	handle, context uint64
	tid             uint32
}

// Handles of the default CUDA streams, which programs also write as 0.
const (
	legacyStream    = 1
	perThreadStream = 2
)

// Stream is what pairing remembers of one CUDA stream.
type Stream struct {
	process *Process
	key     streamKey
	context uint64
	notes   []streamNote
	pending []Copy // that no wait ended yet, in order of entry
	behind  bool   // kernels were launched before the pending copies
	spoiled bool   // no copy is added before the next wait
	waited  uint64 // entry of the last wait
	ran     uint64 // entry of the latest launch, or time of the last doubt
	lostAt  uint64 // see Pairs.lostAt
}

type noteKind uint8

const (
	noteLaunches noteKind = iota // one or more, without another note between them
	noteCopy
	noteWait
	noteBlock // one or more synchronous copies, without another note between them
)

type streamNote struct {
	kind     noteKind
	from, to uint64 // launches: entries of the first and the last; else entry and return, of the last copy
	copy     Copy
}

// at is the time at which a note takes effect: a wait at its end.
func (n *streamNote) at() uint64 {
	if n.kind == noteWait || n.kind == noteBlock {
		return n.to
	}
	return n.from
}

func (n streamNote) compare(to streamNote) int { return cmp.Compare(n.at(), to.at()) }

// Place says in which CUDA stream a call works.
type Place struct {
	CUDAStream uint64 // argument of the call
	PerThread  bool   // 0 is the default CUDA stream of the thread
	Context    uint64 // 0: unknown
	TID        uint32
	Late       bool // its process made calls before it was watched
}

// key returns false for a default CUDA stream of an unknown context.
func (at Place) key() (streamKey, bool) {
	switch {
	case at.CUDAStream > perThreadStream:
		return streamKey{handle: at.CUDAStream}, true
	case at.CUDAStream == perThreadStream || at.CUDAStream == 0 && at.PerThread:
		return streamKey{perThreadStream, at.Context, at.TID}, at.Context != 0
	}
	return streamKey{legacyStream, at.Context, 0}, at.Context != 0
}

// Stream returns a CUDA stream of a process; nil if it is not followed.
func (p *Pairs) Stream(of *Process, at Place) *Stream {
	key, followed := at.key()
	if !p.copies || !followed {
		return nil
	}
	s := of.find(key)
	if s == nil {
		if s = of.add(key); s == nil {
			return nil
		}
		s.lostAt = p.lostAt
		if at.Late {
			s.ran = 1 // until the first wait
		}
	}
	s.context = at.Context
	return s
}

func (of *Process) find(key streamKey) *Stream {
	switch {
	case of.last != nil && of.last.key == key:
		return of.last
	case len(of.streams) == 0:
		return nil
	}
	if s := of.streams[key]; s != nil {
		of.last = s
		return s
	}
	return nil
}

// add returns a new CUDA stream, in place of idle ones if there are too many; nil if there is no room.
func (of *Process) add(key streamKey) *Stream {
	if len(of.streams) >= maxStreams && !of.full {
		maps.DeleteFunc(of.streams, func(_ streamKey, s *Stream) bool { return len(s.notes)+len(s.pending) == 0 })
		of.full = len(of.streams) >= maxStreams
	}
	if of.full {
		return nil
	}
	if of.streams == nil {
		of.streams = map[streamKey]*Stream{}
	}
	of.last = &Stream{process: of, key: key}
	of.streams[key] = of.last
	return of.last
}

// extend adds a launch to the last note, if that is of launches and earlier.
func (s *Stream) extend(at uint64) bool {
	n := len(s.notes) - 1
	if n < 0 || s.notes[n].kind != noteLaunches || at < s.notes[n].to {
		return false
	}
	s.notes[n].to = at
	return true
}

// extendBlock adds a synchronous copy to the last note, if that is of such copies and earlier.
func (s *Stream) extendBlock(from, to uint64) bool {
	n := len(s.notes) - 1
	if n < 0 || s.notes[n].kind != noteBlock || to < s.notes[n].to {
		return false
	}
	s.notes[n].from, s.notes[n].to = from, to
	return true
}

// doubt drops the pending copies, and assumes a launch at a time: records up to it are missing.
func (s *Stream) doubt(at uint64) {
	s.pending, s.spoiled, s.ran = nil, true, max(s.ran, at)
}

func (of *Process) doubtAll(at uint64) {
	for _, s := range of.streams {
		s.doubt(at)
	}
}

// finishProcess finds the ended copies of one process, and returns the number of notes that are left.
func (p *Pairs) finishProcess(of *Process, through uint64) (left int) {
	of.full = false
	for _, s := range of.streams {
		for _, w := range of.waits {
			if w.context == s.context && w.to <= through {
				s.notes = append(s.notes, streamNote{kind: noteWait, from: w.from, to: w.to})
			}
		}
		p.finishStream(s, through)
		left += len(s.notes)
	}
	of.waits = slices.DeleteFunc(of.waits, func(w contextWait) bool { return w.to <= through })
	return left + len(of.waits)
}

func (p *Pairs) finishStream(s *Stream, through uint64) {
	if s.lostAt != p.lostAt {
		s.lostAt = p.lostAt
		s.doubt(p.lostAt)
	}
	if !slices.IsSortedFunc(s.notes, streamNote.compare) {
		slices.SortStableFunc(s.notes, streamNote.compare)
	}
	done := 0
	for ; done < len(s.notes) && s.notes[done].at() <= through; done++ {
		p.stream(s, &s.notes[done])
	}
	s.notes = rest(s.notes, done)
}

func (p *Pairs) stream(s *Stream, n *streamNote) {
	switch n.kind {
	case noteLaunches:
		s.pending, s.ran = nil, max(s.ran, n.to)
	case noteCopy:
		s.add(&n.copy)
	case noteWait:
		p.end(s, n)
		s.waited, s.spoiled = max(s.waited, n.from), false
	case noteBlock:
		s.pending, s.waited, s.spoiled = nil, max(s.waited, n.from), false
	}
}

// add adds a copy to the pending ones.
func (s *Stream) add(c *Copy) {
	switch first := len(s.pending) == 0; {
	case s.spoiled || s.ran > c.Time: // a launch may have followed the copy
		return
	case first:
		s.behind = s.ran > s.waited
	case c.Direction != s.pending[0].Direction || c.HostMem != s.pending[0].HostMem || len(s.pending) == maxPending:
		s.pending, s.spoiled = nil, true
		return
	}
	s.pending = append(s.pending, *c)
}

// end reports the copies that returned before a wait began.
func (p *Pairs) end(s *Stream, wait *streamNote) {
	covered := func(c *Copy) bool { return c.Time+c.Duration <= wait.from }
	bytes, from := uint64(0), wait.to
	for i := range s.pending {
		if c := &s.pending[i]; covered(c) {
			bytes, from = bytes+c.Bytes, min(from, c.Time)
		}
	}
	var before, given uint64
	s.pending = slices.DeleteFunc(s.pending, func(c Copy) bool {
		if !covered(&c) {
			return false
		}
		if bytes > 0 {
			before += c.Bytes
			until := max(share(wait.to-from, before, bytes), given)
			p.Ended = append(p.Ended, Ended{c, until - given, s.behind})
			given = until
		}
		return true
	})
}

// share returns ns * part / whole.
func share(ns, part, whole uint64) uint64 {
	high, low := bits.Mul64(ns, part)
	if high >= whole {
		return 0 // only if part exceeds whole: the bytes overflowed
	}
	quotient, _ := bits.Div64(high, low, whole)
	return quotient
}
