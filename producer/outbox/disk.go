package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

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
	o.root = root
	if o.dir, err = root.Open("."); err == nil {
		err = o.lock()
	}
	if err == nil {
		err = o.restore()
	}
	if err != nil {
		o.closeFiles()
		return fmt.Errorf("outbox %s: %w", o.opts.Dir, err)
	}
	if err := errors.Join(o.sweep(), o.save()); err != nil {
		o.fail(err)
	}
	o.opts.Changed()
	return nil
}

// lock makes sure that this producer alone writes the directory.
func (o *Outbox) lock() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(o.dir.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&0o022 != 0 || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return errors.New("others may write there, and its batches are sent as this host's: chmod 700 it")
	}
	err := unix.Flock(int(o.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("in use by another producer: give each producer its own producer.outbox")
	} else if err != nil {
		return err
	}
	if err := o.tryDisk(); err != nil && !mayRecover(err) { // a disk that failed is found when it is written
		return fmt.Errorf("write: %w; see producer.outbox", err)
	}
	return nil
}

// store writes the record of a batch.
func (o *Outbox) store(b *Batch, inFlight bool) error {
	h := head{Events: uint32(b.Events), Seq: b.Seq, Closed: b.Closed, Last: b.Last, Lost: b.Lost}
	o.buf = (&record{h, b.Data}).encode(o.buf)
	fits := o.makeRoom(b.Kind, int64(len(o.buf)))
	if err := o.sweep(); err != nil {
		return err
	}
	if !fits && inFlight {
		return errFull
	}
	if !fits {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.dropped++
		o.opts.Lost.Add(uint64(b.Events))
		return nil
	}
	s, err := o.segmentFor(b.Kind, int64(len(o.buf)))
	if err != nil {
		return err
	}
	if _, err := s.file.WriteAt(o.buf, s.end.Off); err != nil {
		_ = s.file.Truncate(s.end.Off)
		o.seal(s)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b.segment, b.at = s, s.end
	if inFlight {
		o.queues[b.Kind].inFlight = b
	}
	s.end = s.end.after(len(b.Data), b.Events)
	s.bytes = s.end.Off
	return nil
}

// segmentFor returns the open segment of a kind, or a new one when the batch does not fit.
func (o *Outbox) segmentFor(kind schema.Kind, bytes int64) (*segment, error) {
	if s := o.open[kind]; s != nil {
		if s.end == s.begin || s.end.Off+bytes <= o.opts.SegmentBytes {
			return s, nil
		}
		if err := o.syncFile(s, true); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	q := &o.queues[kind]
	end, number := q.end(), o.run<<32|o.made
	o.mu.Unlock()
	s := &segment{kind: kind, number: number, header: header{
		Cluster: o.opts.Cluster, Host: o.opts.Host, Batches: end.Batches, Events: end.Events, Lost: o.opts.Lost.Load(),
	}}
	o.made++
	if err := errors.Join(s.create(o.root), o.dir.Sync()); err != nil {
		return nil, err
	}
	o.open[kind] = s
	o.mu.Lock()
	defer o.mu.Unlock()
	q.segments = append(q.segments, s)
	o.advance(q, q.acked)
	return s, nil
}

// seal closes the file of a segment.
func (o *Outbox) seal(s *segment) {
	o.open[s.kind] = nil
	s.file.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.open {
		s.open = false
		q := &o.queues[s.kind]
		o.advance(q, q.acked) // all of it may be acked
	}
}

// syncFile syncs an open segment with batches that are not acked. After an error Linux may have dropped its pages.
func (o *Outbox) syncFile(s *segment, seal bool) (err error) {
	o.mu.Lock()
	waiting := o.queues[s.kind].waiting()
	o.mu.Unlock()
	if waiting > 0 && s.synced < s.end.Off {
		err = s.file.Sync()
		s.synced = s.end.Off
	}
	if seal || err != nil {
		o.seal(s)
	}
	return err
}

// syncAll syncs batches that are not acked, stores the positions of acked ones and deletes files that have no others.
func (o *Outbox) syncAll(seal bool) error {
	var errs []error
	for _, s := range o.open {
		if s != nil {
			errs = append(errs, o.syncFile(s, seal))
		}
	}
	return errors.Join(append(errs, o.sweep(), o.save())...)
}

func (o *Outbox) syncUntil(ctx context.Context) {
	tick := time.NewTicker(o.opts.SyncInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.sync(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (o *Outbox) sync(ctx context.Context) {
	if err := o.writing.take(ctx, o.opts.Timeout, o.step); err != nil && ctx.Err() == nil {
		o.fail(err)
	}
}

// step syncs everything. It tries again a disk that failed.
func (o *Outbox) step() error {
	failed := !o.Stats().Writable
	if failed {
		if err := o.retry(); err != nil {
			return err
		}
	}
	if err := o.syncAll(false); err != nil || !failed {
		return err
	}
	o.mu.Lock()
	o.failing = false
	o.mu.Unlock()
	o.opts.Log.Info("outbox writable again", "dir", o.opts.Dir)
	o.opts.Changed()
	return nil
}

// retry sees whether the disk takes a large batch. On a full one it drops what is less precious than urgent batches.
func (o *Outbox) retry() error {
	if o.root == nil {
		return o.enter()
	}
	err := o.tryDisk()
	for isFull(err) {
		urgent := slices.Index(DropOrder, o.opts.Urgent())
		o.mu.Lock()
		evicted := o.evict(urgent)
		o.mu.Unlock()
		if !evicted {
			break
		}
		err = o.tryDisk()
	}
	return err
}

func (o *Outbox) tryDisk() error {
	if err := o.sweep(); err != nil {
		return err
	}
	f, err := o.root.OpenFile("try", os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = o.root.Remove("try") }()
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, maxRecordBytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// sweep deletes the files of removed segments, after the state with their losses is stored. A full disk may need their
// room for the state.
func (o *Outbox) sweep() error {
	o.mu.Lock()
	trash := o.trash
	o.mu.Unlock()
	if len(trash) == 0 {
		return nil
	}
	err := o.save()
	if err != nil && !isFull(err) {
		return err
	}
	for _, s := range trash {
		if o.open[s.kind] == s {
			o.seal(s)
		}
		if err := o.root.Remove(s.name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	o.mu.Lock()
	o.trash = o.trash[len(trash):]
	o.mu.Unlock()
	if err != nil {
		err = o.save()
	}
	return err
}

// leave syncs everything and closes the directory.
func (o *Outbox) leave() {
	o.mu.Lock()
	for i := range o.queues {
		q := &o.queues[i]
		if b := q.inFlight; b != nil && b.segment != nil && !slices.Contains(q.segments, b.segment) {
			o.opts.Lost.Add(uint64(b.Events)) // no file has it any more
		}
	}
	o.mu.Unlock()
	if err := o.syncAll(true); err != nil {
		o.fail(err)
	}
	o.closeFiles()
}

func (o *Outbox) closeFiles() {
	for kind, s := range o.open {
		if s != nil {
			s.file.Close()
			o.open[kind] = nil
		}
	}
	o.root.Close()
	o.dir.Close()
	o.root, o.saved = nil, nil
}
