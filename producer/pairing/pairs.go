package pairing

import (
	"slices"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// Bounds of what programs can make Pairs remember.
const (
	maxNotes   = 1 << 16 // of all threads and CUDA streams between two calls of Finish
	maxOwn     = 1 << 12 // of one thread, CUDA stream or process
	maxPending = 256     // copies of one CUDA stream before a wait
	maxStreams = 1 << 10 // CUDA streams of a process
	keptNotes  = 64      // an owner with room for more notes frees them
)

// Work is a launch or copy: the head of its record and its CUDA stream.
type Work struct {
	bpf.Head
	CUDAStream uint64
}

// Gap is the time between the end of a wait and the next launch of its thread.
type Gap struct {
	Work // the launch
	NS   uint64
}

// Copy is a successful asynchronous copy.
type Copy struct {
	Work
	Duration  uint64 // ns in the call
	Bytes     uint64
	Direction schema.Direction
	HostMem   schema.HostMem
}

// Ended is a copy that ended. The time from the entry of the first copy until the end of the wait is divided among the
// copies of one wait by their bytes.
type Ended struct {
	Copy
	NS     uint64 // the share of this copy
	Behind bool   // kernels were launched in its CUDA stream before it, after the last wait
}

// Pairs pairs the calls of a host. Use New.
type Pairs struct {
	Gaps    []Gap   // found by the last Finish, valid until the next
	Ended   []Ended // found by the last Finish, valid until the next
	Unknown uint64  // waits whose gap was left out, so far

	copies    bool
	threads   []*Thread  // with notes
	processes []*Process // with notes
	notes     int
	waits     int    // notes of waits since the last Finish
	lost      uint64 // records, at the last Finish that asked
	lostAt    uint64 // time up to which records were lost
}

// New returns an empty Pairs. Without copies it finds gaps only.
func New(copies bool) *Pairs { return &Pairs{copies: copies} }

// Launch notes the launch of a kernel or graph. s is nil if its CUDA stream is not followed.
func (p *Pairs) Launch(t *Thread, s *Stream, l *bpf.LaunchRecord) {
	if !t.extend(l.Time) {
		p.startRun(t, l)
	}
	if s != nil && !s.extend(l.Time) {
		p.noteStream(s, streamNote{kind: noteLaunches, from: l.Time, to: l.Time})
	}
}

func (p *Pairs) startRun(t *Thread, l *bpf.LaunchRecord) {
	p.noteThread(t, threadNote{from: l.Time, to: l.Time, work: Work{l.Head, l.CUDAStream}})
}

// WaitStream notes a successful wait for a CUDA stream. s is nil if it is not followed.
func (p *Pairs) WaitStream(t *Thread, s *Stream, w *bpf.SyncRecord) {
	p.Wait(t, w)
	if s != nil {
		p.noteStream(s, streamNote{kind: noteWait, from: w.Time, to: w.Time + w.Duration})
	}
}

// WaitContext notes a successful wait for all CUDA streams of a context; 0 is unknown.
func (p *Pairs) WaitContext(t *Thread, of *Process, context uint64, w *bpf.SyncRecord) {
	p.Wait(t, w)
	if !p.copies || context == 0 {
		return
	}
	if len(of.waits) >= maxOwn || p.notes >= maxNotes {
		of.doubtAll(w.Time + w.Duration)
		return
	}
	p.notes++
	p.queueProcess(of)
	of.waits = append(of.waits, contextWait{context, w.Time, w.Time + w.Duration})
}

// Wait notes a successful wait for anything else, such as a CUDA event.
func (p *Pairs) Wait(t *Thread, w *bpf.SyncRecord) {
	end := w.Time + w.Duration
	p.waits++
	p.noteThread(t, threadNote{wait: true, from: end, to: end})
}

// Copy notes a successful asynchronous copy.
func (p *Pairs) Copy(s *Stream, c Copy) {
	if s != nil {
		p.noteStream(s, streamNote{kind: noteCopy, from: c.Time, to: c.Time + c.Duration, copy: c})
	}
}

// Block notes a successful synchronous copy that waited for the earlier work of its default CUDA stream.
func (p *Pairs) Block(of *Process, at Place, c *bpf.CopyRecord) {
	key, followed := at.key()
	if !p.copies || !followed {
		return
	}
	if s, end := of.find(key), c.Time+c.Duration; s != nil && !s.extendBlock(c.Time, end) {
		p.noteStream(s, streamNote{kind: noteBlock, from: c.Time, to: end})
	}
}

func (p *Pairs) noteThread(t *Thread, n threadNote) {
	if !t.queued {
		t.queued = true
		p.threads = append(p.threads, t)
	}
	if len(t.notes) >= maxOwn || p.notes >= maxNotes {
		t.full = max(t.full, n.to)
		if n.wait {
			p.Unknown++
		}
		return
	}
	p.notes++
	t.notes = append(t.notes, n)
}

func (p *Pairs) noteStream(s *Stream, n streamNote) {
	p.queueProcess(s.process)
	if len(s.notes) >= maxOwn || p.notes >= maxNotes {
		s.doubt(n.to)
		return
	}
	p.notes++
	s.notes = append(s.notes, n)
}

func (p *Pairs) queueProcess(of *Process) {
	if !of.queued {
		of.queued = true
		p.processes = append(p.processes, of)
	}
}

// Finish finds the pairs up to a time. Every record that was written before that time has been noted. lost returns the
// number of lost records so far; Finish asks only if it might find a pair.
func (p *Pairs) Finish(through schema.KTime, lost func() uint64) {
	p.Gaps, p.Ended = p.Gaps[:0], p.Ended[:0]
	if p.waits > 0 {
		if n := lost(); n != p.lost {
			p.lost, p.lostAt = n, uint64(through)
		}
	}
	p.notes, p.waits = 0, 0
	p.threads = slices.DeleteFunc(p.threads, func(t *Thread) bool {
		p.finishThread(t, uint64(through))
		t.queued = len(t.notes) > 0
		p.notes += len(t.notes)
		return !t.queued
	})
	p.processes = slices.DeleteFunc(p.processes, func(of *Process) bool {
		left := p.finishProcess(of, uint64(through))
		of.queued = left > 0
		p.notes += left
		return !of.queued
	})
	if p.notes > 0 {
		p.waits++ // a wait may be among them
	}
}
