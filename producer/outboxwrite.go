package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gputap/gputap/schema"
)

// writer is what only the goroutine has that writes the outbox.
type writer struct {
	dir     directory
	open    [schema.NumKinds]*openSegmentFile
	closing []*openSegmentFile // full, not synced yet
	created bool               // a file since the directory was synced
	cursor  string             // as it was last written
	owed    bool               // something is, says the one on the disk
}

// began takes a directory that was entered.
func (w *writer) began(f *found) { w.dir, w.cursor, w.owed = f.dir, "", len(f.at.debts) > 0 }

// openSegmentFile is a segment with its file.
type openSegmentFile struct {
	*segment
	file *os.File
}

// mostClosing bounds the files that wait to be synced.
const mostClosing = 16

// store writes batches to the outbox until ctx ends, and then what is left. A disk that does not answer then is left behind.
func (s *spool) store(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.storeAll(ctx)
	}()
	<-ctx.Done()
	look := time.NewTicker(patience / 100)
	defer look.Stop()
	for !s.hangs(patience) {
		select {
		case <-done:
			return
		case <-look.C:
		}
	}
}

// storeAll is store while the disk answers. Only it writes there.
func (s *spool) storeAll(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.unwritten:
		case <-tick.C:
			s.settle()
		case <-ctx.Done():
			s.finish()
			return
		}
		for s.writeRound() {
			select {
			case <-tick.C:
				s.settle()
			default:
			}
		}
	}
}

// writeRound writes one batch of each kind, the most precious first. It reports whether another round is of use.
func (s *spool) writeRound() (wrote bool) {
	defer s.report()
	s.using(time.Now())
	err := s.sweep()
	s.using(time.Time{})
	if err != nil {
		s.mu.Lock()
		s.failed(err)
		s.mu.Unlock()
	}
	for i := len(dropOrder) - 1; i >= 0; i-- {
		if len(s.outbox.writer.closing) >= mostClosing {
			s.settle()
		}
		kind := dropOrder[i]
		e := s.claim(kind)
		if e == nil {
			continue
		}
		seg, err := s.write(kind, e)
		wrote = s.written(kind, e, seg, err) || wrote
	}
	return wrote
}

// claim is the oldest batch of a kind that memory alone holds. The spool lets it lie until written is called.
func (s *spool) claim(kind schema.Kind) *encoded {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.stored[kind]
	if s.outbox.failing || i >= len(s.queues[kind]) {
		return nil
	}
	e := s.queues[kind][i]
	e.writing = true
	s.outbox.began = time.Now()
	return e
}

var errNoRoom = errors.New("all that the outbox may hold is more precious")

// write puts a batch behind the last one of its kind.
func (s *spool) write(kind schema.Kind, e *encoded) (*segment, error) {
	o := s.outbox
	need := int64(headBytes + len(e.data))
	if !s.makeRoom(kind, need) {
		return nil, errNoRoom
	}
	open := o.writer.open[kind]
	if open != nil && open.end.off+need > max(o.segment, open.begin.off+need) {
		s.seal(kind, true)
		open = nil
	}
	if open == nil {
		var err error
		if open, err = s.create(kind); err != nil {
			return nil, err
		}
	}
	if err := writeRecord(open.file, open.end.off, e); err != nil {
		_ = open.file.Truncate(open.end.off) // what cannot be cut off now is when it is read again
		s.seal(kind, false)
		return nil, err
	}
	return open.segment, nil
}

// hang is how long the disk may take before everybody goes on without it.
var hang = 5 * time.Second // tests have less

var errHangs = fmt.Errorf("it has not answered for %s", hang)

// hangs reports whether the goroutine that writes has waited for the disk for so long.
func (s *spool) hangs(long time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.outbox.began.IsZero() && time.Since(s.outbox.began) > long
}

// using notes since when the goroutine that writes waits for the disk.
func (s *spool) using(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outbox.began = since
}

// notice does what the goroutine that writes cannot while the disk does not answer it. The disk is tried again when it does.
func (s *spool) notice() {
	s.mu.Lock()
	o := s.outbox
	hangs := !o.failing && !o.began.IsZero() && time.Since(o.began) > hang
	if hangs {
		s.failed(errHangs)
	}
	s.mu.Unlock()
	if hangs {
		s.report()
	}
}

// report says that the disk is bad when it was not, and the other way round.
func (s *spool) report() {
	s.mu.Lock()
	bad, is := s.outbox.news()
	s.mu.Unlock()
	s.outbox.report(bad, is)
}

// failed has everybody go on with memory alone.
func (s *spool) failed(err error) {
	s.outbox.failed(err)
	s.wakeAll()
}

// written ends what claim began. It reports whether the batch is out of the way.
func (s *spool) written(kind schema.Kind, e *encoded, seg *segment, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbox
	e.writing = false
	o.began = time.Time{}
	defer s.wakeUp(kind)
	switch {
	case errors.Is(err, errNoRoom):
		if e == s.inFlight[kind] {
			return false // memory alone keeps it until it is acked
		}
		if !e.done {
			o.gone++
			s.giveUp(kind, s.stored[kind])
		}
	case err != nil:
		s.failed(err)
		return false
	default:
		e.mark = seg.end
		seg.end = e.behind()
		o.bytes -= seg.share()
		seg.bytes = seg.end.off
		o.bytes += seg.share()
		o.batches[kind]++
		switch {
		case !e.done:
			s.stored[kind]++
		case e.mark == o.at[kind]: // acked meanwhile, and so was all before it
			o.advance(kind, seg.end)
		}
	}
	return true
}

// makeRoom gives up the oldest segments of kinds that are no more precious than this one.
func (s *spool) makeRoom(kind schema.Kind, need int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outbox
	for o.bytes+need+2*shareBytes > o.limit {
		if !s.dropSegment(kind) {
			return false
		}
	}
	return true
}

// dropSegment gives up one segment. The spool's copies of its batches go with it.
func (s *spool) dropSegment(most schema.Kind) bool {
	o := s.outbox
	for _, kind := range dropOrder {
		var pinned *segment
		if e := s.inFlight[kind]; e != nil {
			pinned = e.mark.seg
		}
		i, ok := o.oldest(kind, pinned)
		if !ok {
			if kind == most {
				return false
			}
			continue
		}
		seg := o.segments[kind][i]
		o.gone += s.giveUpSegment(kind, i)
		s.letGo(kind, seg)
		s.turn(seg)
		return true
	}
	return false
}

// giveUpSegment counts what is left of a segment as lost.
func (s *spool) giveUpSegment(kind schema.Kind, i int) uint64 {
	o, seg := s.outbox, s.outbox.segments[kind][i]
	batches, events := o.left(kind, seg)
	s.dropped += events
	s.batches += uint64(batches)
	s.forget(kind, seg)
	o.remove(kind, i)
	return uint64(batches)
}

// create begins a segment.
func (s *spool) create(kind schema.Kind) (*openSegmentFile, error) {
	o := s.outbox
	s.mu.Lock()
	number := o.next
	o.next++
	s.mu.Unlock()
	root, name := o.writer.dir.Root, segmentName(kind, number)
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	begin := beginning(o.self, o.run)
	if _, err := f.WriteAt(begin, 0); err != nil {
		f.Close()
		_ = root.Remove(name)
		return nil, err
	}
	seg := &segment{root: root, name: name, number: number, origin: o.self, run: o.run, bytes: int64(len(begin))}
	seg.begin = mark{seg: seg, off: seg.bytes}
	seg.end = seg.begin
	open := &openSegmentFile{seg, f}
	o.writer.open[kind] = open
	o.writer.created = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(o.segments[kind]) == 0 {
		o.at[kind] = seg.begin
	}
	o.segments[kind] = append(o.segments[kind], seg)
	o.bytes += seg.share()
	return open, nil
}

// seal ends the open segment of a kind. Its file is closed when it has been synced.
func (s *spool) seal(kind schema.Kind, sound bool) {
	o := s.outbox
	open := o.writer.open[kind]
	if open == nil {
		return
	}
	o.writer.open[kind] = nil
	var err error
	if sound {
		err = open.writeEnding(open.file)
	}
	o.writer.closing = append(o.writer.closing, open)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed(err)
	}
	open.sealed = true
	if sound && err == nil {
		o.bytes -= open.share()
		open.bytes = open.end.off + headBytes
		o.bytes += open.share()
	}
	switch first := o.segments[kind][0]; {
	case first == open.segment && o.at[kind].off >= open.end.off:
		o.remove(kind, 0)
	case open.end.batches == 0:
		o.remove(kind, len(o.segments[kind])-1)
	}
}
