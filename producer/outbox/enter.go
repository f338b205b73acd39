package outbox

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// enter locks the directory and adds its batches to the queues.
func (o *Outbox) enter() (err error) {
	if err := os.MkdirAll(o.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("create the outbox: %w; see producer.outbox", err)
	}
	root, err := os.OpenRoot(o.opts.Dir)
	if err != nil {
		return fmt.Errorf("open the outbox: %w; see producer.outbox", err)
	}
	dir, err := root.Open(".")
	if err != nil {
		root.Close()
		return fmt.Errorf("open the outbox: %w; see producer.outbox", err)
	}
	o.disk.root, o.disk.dir = root, dir
	defer func() {
		if err != nil {
			o.disk.leave()
		}
	}()
	if err := o.claim(); err != nil {
		return fmt.Errorf("outbox %s: %w", o.opts.Dir, err)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list the outbox: %w", err)
	}
	st, err := readState(root)
	if errors.Is(err, errCorrupt) {
		st.corrupt = 1
		o.opts.Log.Warn("outbox state is corrupt; acked batches may be sent again, earlier losses may not be reported",
			"dir", o.opts.Dir)
	} else if err != nil { // it may be readable later, and must not be replaced
		return fmt.Errorf("read the state of the outbox %s: %w", o.opts.Dir, err)
	}
	var found []*segment
	slices.Sort(names)
	for _, name := range names {
		if kind, number, ok := parseName(name); ok {
			s, cutOff, err := openSegment(root, kind, number)
			st.Next = max(st.Next, number+1)
			if o.inspect(s, &st, cutOff, err) {
				found = append(found, s)
				if !s.ended {
					o.disk.unended = append(o.disk.unended, s)
				}
			}
			o.touch()
		}
	}
	o.adopt(found, &st)
	if err := errors.Join(o.sweep(), o.save()); err != nil {
		o.fail(err)
	}
	return nil
}

// claim makes sure that this producer alone writes the directory.
func (o *Outbox) claim() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(o.disk.dir.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&0o022 != 0 || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return errors.New("others may write there, and its batches are sent as this host's: chmod 700 it")
	}
	if err := unix.Flock(int(o.disk.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("in use by another producer: give each producer its own producer.outbox")
	} else if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	try, err := o.disk.create("try")
	if err == nil {
		try.Close()
		_ = o.disk.root.Remove("try")
	} else if !mayRecover(err) { // a disk that failed is found when it is written
		return fmt.Errorf("write: %w; see producer.outbox", err)
	}
	return nil
}

// inspect reports whether a segment holds batches to be sent, and counts its lost events.
func (o *Outbox) inspect(s *segment, st *state, cutOff uint64, err error) bool {
	log := o.opts.Log.With("dir", o.opts.Dir, "segment", s.name())
	acked := st.Acked[s.kind.String()]
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case errors.Is(err, errNewerForm):
		log.Warn("outbox segment is kept for a newer program", "err", err)
		return false
	case err != nil && !errors.Is(err, errCorrupt):
		o.corrupt++
		log.Warn("outbox segment cannot be read; it is kept for a later start", "err", err)
		return false
	case err != nil && s.size >= headBytes: // a smaller one is of a crash before its first batch
		o.corrupt++
		o.inherited += s.end.Events - st.ackedIn(s).Events
		log.Warn("outbox segment is corrupt; its batches are lost", "batches", s.end.Batches)
	// A tail cut off before the acked position was acked.
	case err == nil && s.torn() && (acked.Segment != s.number || acked.Off <= s.end.Off):
		o.corrupt++
		o.inherited += cutOff
		log.Warn("outbox segment is cut off after a crash, or corrupt",
			"batches", s.end.Batches, "events_lost_at_least", cutOff)
	}
	if err != nil || s.end.Batches == 0 {
		o.trash = append(o.trash, s)
		return false
	}
	return true
}

// adopt adds segments to the queues.
func (o *Outbox) adopt(found []*segment, st *state) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = max(o.next, st.Next)
	o.corrupt += st.corrupt
	for _, s := range found {
		o.add(s)
	}
	for id, stored := range st.Runs {
		if r := o.runs[id]; r != nil {
			r.Reported = max(r.Reported, stored.Reported)
			stored.Reported = max(r.Reported, r.Lost)
		}
		o.inherited += stored.unreported() // no batch reported these, or will
	}
	for i := range o.queues {
		if q := &o.queues[i]; len(q.segments) > 0 {
			o.advance(q, st.ackedIn(q.segments[0]))
		}
	}
	for o.bytes > o.opts.MaxBytes && o.evict(schema.KindMemory) { // the limit was lowered
	}
	o.opts.Changed()
}
