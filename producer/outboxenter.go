package producer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// found is what a directory held.
type found struct {
	dir      directory
	segments [schema.NumKinds][]*segment
	first    [schema.NumKinds]mark // that is not acked, where there are segments
	at       cursor
	next     uint64                  // least number that no segment has had
	kept     [schema.NumKinds]uint64 // least number of a segment that could not be taken; 0: none
	lastKept uint64                  // greatest of all kinds
	damaged  uint64
	lost     uint64 // events
	trash    []*segment
	torn     []*segment
}

// directory is one that was entered. Its files are reached through it and not by a path, on which another may be by then.
type directory struct {
	*os.Root          // nil: none is
	lock     *os.File // itself
}

func (d *directory) close() {
	d.Close()
	d.lock.Close()
	*d = directory{}
}

// entered is what came of enter.
type entered struct {
	found
	err error
}

// enter locks the directory and reads what is in it.
func (o *outbox) enter() (found, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return found{}, fmt.Errorf("outbox: %w (see producer.outbox)", err)
	}
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return found{}, fmt.Errorf("outbox: %w (see producer.outbox)", err)
	}
	lock, err := root.Open(".")
	if err != nil {
		root.Close()
		return found{}, fmt.Errorf("outbox: %w (see producer.outbox)", err)
	}
	f := found{dir: directory{root, lock}}
	if err := o.look(&f); err != nil {
		f.dir.close()
		return found{}, err
	}
	return f, nil
}

func (o *outbox) look(f *found) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.dir.lock.Fd()), &stat); err != nil {
		return fmt.Errorf("outbox %s: %w", o.dir, err)
	}
	if stat.Mode&0o022 != 0 || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("outbox %s: others may write there, and what it holds is sent as this host's own: chmod 700 it", o.dir)
	}
	if err := unix.Flock(int(f.dir.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("outbox %s is in use by another producer: give each its own producer.outbox", o.dir)
		}
		return fmt.Errorf("outbox %s: lock: %w", o.dir, err)
	}
	if try, err := f.dir.create("try"); err == nil {
		try.Close()
		_ = f.dir.Remove("try")
	} else if !badDisk(err) { // a bad one is seen when it is written
		return fmt.Errorf("outbox %s: %w (see producer.outbox)", o.dir, err)
	}
	names, err := f.dir.lock.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("outbox %s: %w", o.dir, err)
	}
	f.at, err = readCursor(f.dir.Root)
	if err != nil && !errors.Is(err, errDamaged) {
		return fmt.Errorf("outbox %s: %w", o.dir, err) // it may be read later, and must not be written over
	}
	if err != nil {
		f.damaged++
		o.log.Warn("the outbox's cursor cannot be read: what was acked may be sent again, and what earlier runs lost may be forgotten", "dir", o.dir, "err", err)
	}
	slices.Sort(names)
	for _, name := range names {
		if kind, number, ok := parseName(name); ok {
			f.next = max(f.next, number+1)
			o.open(f, kind, name, number)
			o.answered()
		}
	}
	for kind, list := range f.segments {
		if len(list) > 0 {
			f.first[kind] = list[0].resume(f.at.kinds[kind])
		}
		for _, s := range list[max(0, len(list)-mostClosing-1):] { // a run that was killed may not have synced so many
			s.sync()
			o.answered()
		}
	}
	return nil
}

// create makes a file, or empties it.
func (d *directory) create(name string) (*os.File, error) {
	return d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func segmentName(kind schema.Kind, number uint64) string {
	return fmt.Sprintf("%016x.%s", number, kind)
}

func parseName(name string) (kind schema.Kind, number uint64, ok bool) {
	digits, word, _ := strings.Cut(name, ".")
	kind = schema.ParseKind(word)
	if _, err := fmt.Sscanf(digits, "%x", &number); err != nil || kind == schema.KindNone || name != segmentName(kind, number) {
		return 0, 0, false // not ours
	}
	return kind, number, true
}

// open adds one segment to what was found.
func (o *outbox) open(f *found, kind schema.Kind, name string, number uint64) {
	path := filepath.Join(o.dir, name)
	s, torn, events, err := openSegment(f.dir.Root, name, number)
	at := f.at.kinds[kind]
	if at.number != number {
		at.off, at.events = 0, 0
	}
	switch {
	case slices.Contains(f.at.gone, number):
		f.trash = append(f.trash, s)
		return
	case errors.Is(err, errNewerForm):
		o.log.Warn("a segment of the outbox is left alone", "path", path, "err", err)
		f.keep(kind, number)
		return
	case err != nil && !errors.Is(err, errDamaged):
		f.damaged++
		o.log.Warn("a segment of the outbox cannot be read and is passed over", "path", path, "err", err)
		f.keep(kind, number)
		return
	case number < at.number, s.bytes < int64(beginBytes): // acked, or a crash came before anything was written
		f.trash = append(f.trash, s)
		return
	case err != nil:
		f.damaged++
		f.lost += s.end.events - min(at.events, s.end.events)
		f.trash = append(f.trash, s)
		o.log.Warn("a segment of the outbox is damaged and gone", "path", path, "batches", s.end.batches, "err", err)
		return
	}
	if torn && at.off <= s.end.off && !slices.Contains(f.at.torn, number) { // else it was acked, or counted
		f.damaged++
		f.lost += events
		o.log.Warn("a segment of the outbox was cut off behind its last whole batch: it was written in a crash, or is damaged there",
			"path", path, "batches", s.end.batches, "events_lost", known(events))
	}
	if s.end.batches == 0 {
		f.trash = append(f.trash, s)
		return
	}
	f.segments[kind] = append(f.segments[kind], s)
	if s.cutOff {
		f.torn = append(f.torn, s)
	}
}

// known is for people: of what is cut off more may be lost than what a whole head tells.
func known(events uint64) string {
	if events == 0 {
		return "unknown"
	}
	return fmt.Sprint("at least ", events)
}

// keep leaves a segment to a start that can read it.
func (f *found) keep(kind schema.Kind, number uint64) {
	if f.kept[kind] == 0 || number < f.kept[kind] {
		f.kept[kind] = number
	}
	f.lastKept = max(f.lastKept, number)
}

// resume is where the cursor is, if that is in this segment, else its first record. A torn segment may end before: then all that is
// left of it was acked.
func (s *segment) resume(c cursorEntry) mark {
	p := mark{s, c.off, c.batches, c.events}
	switch {
	case s.number != c.number || p.off <= s.begin.off:
		return s.begin
	case p.off >= s.end.off:
		return s.end
	case p.batches >= s.end.batches || p.events > s.end.events:
		return s.begin
	}
	return p
}
