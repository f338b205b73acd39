package outbox

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// maxUnsynced bounds the files that are full and not synced yet.
const maxUnsynced = 16

// writer is what only the goroutine uses that calls Append, Sync and Close.
type writer struct {
	root    *os.Root // the directory that was entered; nil: none
	dir     *os.File // the same, locked
	open    [schema.NumKinds]*segment
	files   []*segment // with an open file: those of open, and sealed ones that are not synced
	unended []*segment // sealed without an ending, which save writes
	created bool       // a file was created since the directory was synced
	saved   *state     // contents of the state file, if this run wrote it
}

func (w *writer) create(name string) (*os.File, error) {
	return w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// segmentFor returns the open segment of a kind, or a new one when the batch does not fit.
func (o *Outbox) segmentFor(kind schema.Kind, need int64) (*segment, error) {
	if s := o.disk.open[kind]; s != nil {
		if !s.sealed && (s.end.Batches == 0 || s.end.Off+need <= o.opts.SegmentBytes) {
			return s, nil
		}
		o.seal(s, true)
		if len(o.disk.files) > maxUnsynced {
			if err := o.sync(); err != nil {
				return nil, err
			}
		}
	}
	o.mu.Lock()
	number := o.next
	o.next++
	o.mu.Unlock()
	s := &segment{
		root: o.disk.root, kind: kind, number: number, cluster: o.opts.Cluster, host: o.opts.Host, run: o.opts.Run,
	}
	names := fmt.Appendf(nil, "%s\x00%s\x00%s", s.cluster, s.host, s.run)
	s.begin = position{Off: int64(headBytes + len(names))}
	s.end, s.size = s.begin, s.begin.Off
	f, err := s.root.OpenFile(s.name(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := writeRecord(f, 0, head{Seq: segmentForm, Closed: segmentMagic}, names); err != nil {
		f.Close()
		return nil, errors.Join(err, s.root.Remove(s.name()))
	}
	s.file = f
	o.disk.open[kind], o.disk.files, o.disk.created = s, append(o.disk.files, s), true
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(s)
	return s, nil
}

// seal ends an open segment, with an ending if its file is good. The file is closed when it has been synced.
func (o *Outbox) seal(s *segment, good bool) {
	o.disk.open[s.kind] = nil
	if good = good && s.writeEnding(s.file) == nil; good {
		o.touch()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	q := &o.queues[s.kind]
	i := slices.Index(q.segments, s)
	if i < 0 {
		return // it is deleted already
	}
	s.sealed = true
	if good {
		o.resize(s, s.end, s.end.Off+headBytes)
	} else {
		o.disk.unended = append(o.disk.unended, s)
	}
	if s.end.Batches == 0 || i == 0 && q.acked.Off >= s.end.Off {
		o.remove(q, i)
	}
}

// Sync is to be called every second. It syncs batches that are not acked, stores the positions of acked ones and
// deletes files that have no others. It tries again a disk that failed; on a full one it drops batches less precious
// than urgent.
func (o *Outbox) Sync(urgent schema.Kind) {
	o.touch()
	defer o.asked.Store(0)
	if o.entering != nil {
		<-o.entering
		o.entering = nil
	}
	failed := !o.Stats().Writable
	if failed {
		err := o.try()
		for isFull(err) && o.evictFor(urgent) {
			err = o.try()
		}
		if err != nil {
			o.fail(err)
			return
		}
	}
	if err := errors.Join(o.sync(), o.sweep(), o.save()); err != nil {
		o.fail(err)
		return
	}
	if failed {
		o.mu.Lock()
		o.failing = false
		o.mu.Unlock()
		o.opts.Log.Info("outbox writable again", "dir", o.opts.Dir)
		o.opts.Changed()
	}
}

func (o *Outbox) evictFor(urgent schema.Kind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(DropOrder, urgent)
	return i > 0 && o.evict(DropOrder[i-1])
}

// try sees whether the disk takes a large batch.
func (o *Outbox) try() error {
	if o.disk.root == nil {
		if err := o.enter(); err != nil {
			return err
		}
	}
	if err := o.sweep(); err != nil {
		return err
	}
	f, err := o.disk.create("try")
	if err != nil {
		return err
	}
	defer func() { _ = o.disk.root.Remove("try") }()
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, maxRecordBytes); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("reserve room in %s: %w", o.opts.Dir, err)
	}
	return nil
}

// sync syncs the files with batches that are not acked, and closes those that are sealed.
func (o *Outbox) sync() error {
	var errs []error
	needed := false
	for _, s := range slices.Clone(o.disk.files) {
		o.mu.Lock()
		q, end := &o.queues[s.kind], s.end.Off
		i := slices.Index(q.segments, s)
		acked := i < 0 || i == 0 && q.acked.Off >= end
		o.mu.Unlock()
		if !acked && s.synced < end {
			needed = true
			if err := s.file.Sync(); err != nil { // Linux may have dropped the pages
				errs = append(errs, err)
				o.seal(s, false)
			} else {
				s.synced = end
			}
			o.touch()
		}
		if o.disk.open[s.kind] != s {
			o.disk.close(s)
		}
	}
	if needed && o.disk.created && len(errs) == 0 {
		errs = append(errs, o.disk.dir.Sync())
		o.disk.created = errs[0] != nil
	}
	return errors.Join(errs...)
}

// sweep deletes the files of removed segments, after the state with their losses is stored. A full disk may need their
// room for the state.
func (o *Outbox) sweep() error {
	o.mu.Lock()
	trash := slices.Clone(o.trash)
	o.mu.Unlock()
	if len(trash) == 0 || o.disk.root == nil {
		return nil
	}
	err := o.save()
	if err != nil && !isFull(err) {
		return err
	}
	for _, s := range trash {
		o.disk.close(s)
		if err := s.root.Remove(s.name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		o.touch()
	}
	o.mu.Lock()
	o.trash = o.trash[len(trash):]
	o.mu.Unlock()
	if err != nil {
		err = o.save()
	}
	return err
}

// close closes the file of a segment, if it is open.
func (w *writer) close(s *segment) {
	if s.file == nil {
		return
	}
	s.file.Close()
	s.file = nil
	w.files = slices.DeleteFunc(w.files, func(other *segment) bool { return other == s })
	if w.open[s.kind] == s {
		w.open[s.kind] = nil
	}
}

// leave closes everything.
func (w *writer) leave() {
	for _, s := range slices.Clone(w.files) {
		w.close(s)
	}
	if w.root != nil {
		w.root.Close()
		w.dir.Close()
	}
	*w = writer{}
}

// Close syncs all batches and leaves the directory to the next run.
func (o *Outbox) Close() {
	if o.disk.root == nil && o.entering == nil {
		return
	}
	o.touch()
	for _, s := range o.disk.open {
		if s != nil {
			o.seal(s, true)
		}
	}
	o.mu.Lock()
	for i := range o.queues {
		b := o.queues[i].inFlight
		if b != nil && b.segment != nil && !slices.Contains(o.queues[i].segments, b.segment) {
			o.opts.Lost.Add(uint64(b.Events)) // no file has it any more
		}
	}
	o.mu.Unlock()
	o.Sync(schema.KindNone)
	o.disk.leave()
}
