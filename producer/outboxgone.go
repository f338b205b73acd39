package producer

import (
	"errors"
	"os"
	"slices"

	"github.com/gputap/gputap/schema"
)

var errVanished = errors.New("the directory is gone")

// vanished reports whether the directory was removed, or another one is in its place.
func (o *outbox) vanished() bool {
	if o.writer.dir.Root == nil {
		return false
	}
	ours, err := o.writer.dir.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(o.dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(ours, there)
}

// forsake lets go of a directory that is gone: what nothing but it held is lost, what memory has too is as if it had not been
// stored.
func (s *spool) forsake() {
	o, w := s.outbox, &s.outbox.writer
	for kind, open := range w.open {
		if open != nil {
			w.closing = append(w.closing, open)
			w.open[kind] = nil
		}
	}
	for _, open := range w.closing {
		open.file.Close()
	}
	w.closing, w.created = nil, false
	s.leave()
	s.mu.Lock()
	batches, events := s.forgetAll()
	s.failed(errVanished)
	s.mu.Unlock()
	o.log.Warn("the outbox's directory is gone: batches that were nowhere else are lost", "dir", o.dir, "batches", batches, "events", events)
}

// forgetAll empties an outbox and counts what is lost.
func (s *spool) forgetAll() (batches int, events uint64) {
	o := s.outbox
	for kind := range o.segments {
		for len(o.segments[kind]) > 0 {
			b, e := s.lose(schema.Kind(kind))
			batches, events = batches+b, events+e
		}
	}
	o.bytes, o.trash, o.torn = 0, nil, nil
	o.kept, o.lastKept = [schema.NumKinds]uint64{}, 0
	return batches, events
}

// lose lets go of the newest segment of a kind, whose file is gone, and counts what is lost: what memory has too is as if it had
// not been stored.
func (s *spool) lose(kind schema.Kind) (batches int, events uint64) {
	o, q := s.outbox, s.queues[kind]
	last := len(o.segments[kind]) - 1
	seg := o.segments[kind][last]
	batches, events = o.left(kind, seg)
	has := func(e *encoded) {
		batches, events = batches-1, events-uint64(e.events)
		e.mark = mark{}
	}
	if e := s.inFlight[kind]; e != nil && e.mark.seg == seg && (len(q) == 0 || q[0] != e) {
		if e.data == nil { // it is being read
			s.inFlight[kind] = nil
		} else {
			has(e)
		}
	}
	for i := s.stored[kind] - 1; i >= 0 && q[i].mark.seg == seg; i-- {
		has(q[i])
		s.stored[kind]--
	}
	o.remove(kind, last)
	s.batches += uint64(batches)
	s.dropped += events
	return batches, events
}

// seek looks for the files, which nobody reads while memory has what is in them.
func (s *spool) seek() {
	for kind := range s.queues {
		s.mu.Lock()
		list := slices.Clone(s.outbox.segments[kind])
		s.mu.Unlock()
		for _, seg := range slices.Backward(list) {
			if _, err := seg.root.Lstat(seg.name); errors.Is(err, os.ErrNotExist) {
				s.missing(schema.Kind(kind), seg)
			}
		}
	}
}

// missing lets go of a segment whose file was removed. What memory has of it can be stored again only behind all of its kind.
func (s *spool) missing(kind schema.Kind, seg *segment) {
	s.mu.Lock()
	o, before := s.outbox, s.dropped
	i := slices.Index(o.segments[kind], seg)
	e := s.inFlight[kind]
	last := i == len(o.segments[kind])-1
	if i < 0 || !last && e != nil && e.mark.seg == seg { // acked meanwhile, or soon
		s.mu.Unlock()
		return
	}
	s.letGo(kind, seg)
	if last {
		s.lose(kind)
	} else {
		s.giveUpSegment(kind, i)
	}
	events := s.dropped - before
	s.turn(seg)
	s.mu.Unlock()
	o.log.Warn("a file of the outbox is gone: batches that were nowhere else are lost", "path", seg.path(), "events", events)
}

// letGo closes the file of a segment if it is open.
func (s *spool) letGo(kind schema.Kind, seg *segment) {
	w := &s.outbox.writer
	if open := w.open[kind]; open != nil && open.segment == seg {
		w.open[kind] = nil
		open.file.Close()
	}
	seg.sealed = true
}
