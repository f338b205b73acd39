package producer

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// bound gives up what is too much when the limit was lowered since the run before.
func (s *spool) bound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.outbox.bytes > s.outbox.limit && s.dropSegment(schema.KindMemory) {
	}
}

// settle is done every second: a directory that is gone is made anew, what is not acked is synced, the cursor written, what is
// done with removed; a bad disk is tried again.
func (s *spool) settle() {
	defer s.report()
	s.using(time.Now())
	defer s.using(time.Time{})
	if s.outbox.vanished() {
		s.forsake()
	}
	if !s.usable() {
		return
	}
	s.seek()
	s.bound()
	err := errors.Join(s.sync(), s.sweep())
	if err == nil {
		_, _, err = s.writeCursor()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed(err)
	} else if !s.outbox.failing {
		s.outbox.bad = nil
	}
}

// sync syncs the files in which something is not acked, and closes those that are full.
func (s *spool) sync() error {
	w := &s.outbox.writer
	closing := w.closing
	w.closing = nil
	var errs []error
	needed := false
	each := func(kind schema.Kind, open *openSegmentFile) {
		end, acked := s.progress(kind, open.segment)
		if acked || end == open.synced {
			return
		}
		needed = true
		s.using(time.Now())
		if err := open.file.Sync(); err != nil {
			errs = append(errs, err)
			return
		}
		open.synced = end
	}
	for _, open := range closing {
		kind, _, _ := parseName(open.name)
		each(kind, open)
		open.file.Close()
	}
	for kind, open := range w.open {
		if open == nil {
			continue
		}
		failed := len(errs)
		each(schema.Kind(kind), open)
		if len(errs) > failed { // Linux may have dropped what it could not write
			s.seal(schema.Kind(kind), false)
		}
	}
	if needed && w.created {
		if err := w.dir.lock.Sync(); err != nil {
			errs = append(errs, err)
		} else {
			w.created = false
		}
	}
	return errors.Join(errs...)
}

// progress is how far a segment was written, and whether all of it is acked.
func (s *spool) progress(kind schema.Kind, seg *segment) (end int64, acked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.outbox.at[kind]
	if at.seg == nil || at.seg.number > seg.number || at.seg == seg && at.off >= seg.end.off {
		return seg.end.off, true
	}
	return seg.end.off, false
}

// sweep removes the files that are done with, and closes those that are cut off, when it is written down that what they held is
// counted. A full disk needs the room for that. Debts are taken over.
func (s *spool) sweep() error {
	s.mu.Lock()
	left, _ := s.bequeathed()
	idle := s.outbox.writer.dir.Root == nil || len(s.outbox.trash) == 0 && len(s.outbox.torn) == 0 && len(left) == 0
	s.mu.Unlock()
	if idle {
		return nil
	}
	trash, torn, err := s.writeCursor()
	if err != nil && !isFull(err) {
		return err
	}
	s.remove(trash)
	if err != nil {
		_, torn, err = s.writeCursor()
	}
	if err == nil {
		s.outbox.torn = slices.DeleteFunc(torn, func(seg *segment) bool {
			err := seg.close()
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	}
	return err
}

func (s *spool) remove(trash []*segment) {
	w := &s.outbox.writer
	w.closing = slices.DeleteFunc(w.closing, func(open *openSegmentFile) bool { // it would keep its room
		gone := slices.Contains(trash, open.segment)
		if gone {
			open.file.Close()
		}
		return gone
	})
	gone := map[*segment]bool{}
	for _, seg := range trash {
		err := seg.root.Remove(seg.name)
		gone[seg] = err == nil || errors.Is(err, os.ErrNotExist)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outbox.trash = slices.DeleteFunc(s.outbox.trash, func(seg *segment) bool { return gone[seg] })
	for _, seg := range s.outbox.trash { // until the disk lets it go
		if left, tried := gone[seg]; tried && !left && !seg.stuck {
			seg.stuck = true
			s.outbox.writeErr++
		}
	}
}

// writeCursor writes down how far all is acked and what is lost. It gives what is to be done with the files whose
// loss is in that.
func (s *spool) writeCursor() (trash, torn []*segment, err error) {
	o := s.outbox
	s.mu.Lock()
	c := cursor{next: o.next, debts: map[string]debt{}}
	for kind, at := range o.at {
		switch kept := o.kept[kind]; {
		case at.seg == nil:
		case kept != 0 && kept < at.seg.number:
			c.kinds[kind] = cursorEntry{number: kept}
		default:
			c.kinds[kind] = cursorEntry{at.seg.number, at.off, at.batches, at.events}
		}
	}
	left, inherited := s.bequeathed()
	for run, d := range o.debts {
		if run == o.run {
			d.lost = s.dropped + inherited
		}
		if d.lost > d.told && !slices.Contains(left, run) {
			c.debts[run] = d
		}
	}
	trash, torn = slices.Clone(o.trash), o.torn
	s.mu.Unlock()
	c.gone, c.torn = numbers(trash), numbers(torn)
	w := &o.writer
	if text := c.text(); text != w.cursor {
		owes := len(c.debts) > 0
		if err := w.dir.write(text, owes || w.owed); err != nil {
			return trash, torn, err
		}
		w.cursor, w.owed = text, owes
	}
	s.inherit(left)
	return trash, torn, nil
}

func numbers(list []*segment) (numbers []uint64) {
	for _, seg := range list {
		numbers = append(numbers, seg.number)
	}
	return numbers
}

// usable reports whether the disk can be written, and tries a bad one.
func (s *spool) usable() bool {
	o := s.outbox
	s.mu.Lock()
	failing := o.failing
	s.mu.Unlock()
	if !failing {
		return true
	}
	err := s.try()
	for isFull(err) && s.makeWay() {
		err = s.try()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		o.failed(err)
		return false
	}
	o.failing = false
	return true
}

// makeWay gives up the oldest segment of a kind less precious than what memory would give up soon.
func (s *spool) makeWay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, most := 0, 0
	for i, kind := range dropOrder {
		for _, e := range s.queues[kind][s.stored[kind]:] {
			waiting, most = waiting+len(e.data), i
		}
	}
	return waiting > s.limit/2 && most > 0 && s.dropSegment(dropOrder[most-1])
}

// try sees whether a disk takes a large batch again.
func (s *spool) try() error {
	o := s.outbox
	if o.writer.dir.Root == nil {
		found, err := o.come()
		if err != nil {
			return err
		}
		o.writer.began(&found)
		s.mu.Lock()
		s.dropped += o.adopt(found)
		s.wakeAll()
		s.mu.Unlock()
	}
	if err := s.sweep(); err != nil {
		return err
	}
	f, err := o.writer.dir.create("try")
	if err != nil {
		return err
	}
	defer func() { _ = o.writer.dir.Remove("try") }()
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, maxRecordBytes)
	if errors.Is(err, unix.EOPNOTSUPP) { // it will be seen when it is written
		return nil
	}
	if err != nil {
		return fmt.Errorf("reserve room in %s: %w", o.dir, err)
	}
	return nil
}

// come enters a directory that could not be entered before.
func (o *outbox) come() (found, error) {
	if o.late == nil {
		return o.enter()
	}
	e := <-o.late
	o.late = nil
	return e.found, e.err
}

// finish writes what memory alone holds, and leaves the directory to the next run.
func (s *spool) finish() {
	for range 2 { // a bad disk may be good again
		s.settle()
		for s.writeRound() {
		}
	}
	s.using(time.Now())
	for kind := range s.outbox.writer.open {
		s.seal(schema.Kind(kind), true)
	}
	s.abandon()
	s.settle()
	s.using(time.Now())
	defer s.using(time.Time{})
	for _, open := range s.outbox.writer.closing {
		open.file.Close() // the disk is bad
	}
	s.leave()
}

// abandon counts what ends with this run.
func (s *spool) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, q := range s.queues {
		for _, e := range q[s.stored[kind]:] {
			s.dropped += uint64(e.events)
		}
		if e := s.inFlight[kind]; e != nil && e.data != nil && e.mark.seg == nil && (len(q) == 0 || q[0] != e) {
			s.dropped += uint64(e.events) // it was read from a directory that is gone
		}
	}
}

// leave lets another producer have the directory.
func (s *spool) leave() {
	if s.outbox != nil && s.outbox.writer.dir.Root != nil {
		s.outbox.writer.dir.close()
	}
}
