package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gputap/gputap/producer/outbox/segment"
	"github.com/gputap/gputap/schema"
)

// state is kept in a file beside the segments. It may be older than they are: then batches are sent again.
type state struct {
	Run        uint64 // that wrote it
	Acked, End [schema.NumKinds]segment.Position
	Lost       uint64 // events that the run lost
	Unreported uint64 // of these and of those that earlier runs lost: no acked batch reports them
	Reporting  uint64 // the run whose batch was acked last
	Reported   uint64 // the greatest Lost of its acked batches
}

// save writes the state if it changed. Once no batch of an earlier run is left, the losses that none of them reported
// become losses of this run. A state with losses to be reported is synced; else a power cut costs no more than batches
// sent again. A disk that failed must have room for a large batch.
func (o *Outbox) save() (err error) {
	o.mu.Lock()
	st := state{Run: o.run, Reporting: o.reporting, Reported: o.reported, Lost: o.opts.Lost.Load()}
	for i := range o.queues {
		st.Acked[i], st.End[i] = o.queues[i].acked, o.queues[i].end()
	}
	st.Unreported = o.unreported + st.Lost
	if o.reporting == o.run {
		st.Unreported -= min(st.Unreported, o.reported)
	}
	inherited, room := uint64(0), int64(0)
	if o.oldestRun() >= o.run {
		inherited = o.unreported
	}
	if o.failing {
		room = segment.MaxBytes
	}
	st.Lost += inherited
	o.mu.Unlock()
	if was := o.saved; was == nil || *was != st {
		err = o.dir.WriteState(st, room, was == nil || was.Unreported+st.Unreported > 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // in a removed directory nobody will read it
			return err
		}
		o.saved = &st
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unreported -= inherited
	o.opts.Lost.Add(inherited)
	return err
}

// enter locks the directory and adds its batches to the queues.
func (o *Outbox) enter() (err error) {
	if o.dir, err = segment.OpenDir(o.opts.Dir); err != nil {
		return fmt.Errorf("outbox %s: %w", o.opts.Dir, err)
	}
	if err = o.restore(); err == nil {
		o.makeRoom(len(DropOrder), 0) // the limit may be lower than before
		err = errors.Join(o.sweep(), o.save())
	}
	if err != nil && (o.run == 0 || errors.Is(err, os.ErrPermission)) {
		o.closeFiles()
		return fmt.Errorf("outbox %s: %w; see producer.outbox", o.opts.Dir, err)
	}
	if err != nil {
		o.fail(err)
	}
	o.opts.Changed()
	return nil
}

// restore makes the queues from the state and the segments of earlier runs.
func (o *Outbox) restore() error {
	var st state
	corrupt := uint64(0)
	if err := o.dir.ReadState(&st); errors.Is(err, segment.ErrCorrupt) {
		st, corrupt = state{}, 1
		o.opts.Log.Warn("outbox state is corrupt; acked batches may be sent again, earlier losses may not be reported",
			"dir", o.opts.Dir)
	} else if err != nil { // it may be readable later, and must not be replaced
		return err
	}
	found, err := o.dir.Segments()
	if err != nil {
		return err
	}
	var queues [schema.NumKinds]queue
	run, lost, unreported := st.Run, st.Lost, st.Unreported
	for _, s := range found {
		q := &queues[s.Kind]
		if n := len(q.files); n > 0 {
			q.files[n-1].end = s.Begin
		}
		q.files = append(q.files, &file{Name: s.Name, end: s.Begin, bytes: s.Bytes})
		run = max(run, s.Run())
	}
	for kind := range queues {
		q := &queues[kind]
		first := st.End[kind]
		q.acked = st.Acked[kind]
		if n := len(q.files); n > 0 {
			last := q.files[n-1]
			end, reported, err := o.dir.Scan(last.Name)
			if err != nil {
				return err
			}
			last.end.Batches, last.end.Events = max(end.Batches, first.Batches), max(end.Events, first.Events)
			if last.Run() == st.Run {
				lost = max(lost, reported)
			}
			first = q.files[0].Begin
		}
		if first.Batches > q.acked.Batches {
			if _, missing := q.left(first); st.Run > 0 {
				unreported += missing
			}
			q.acked = first
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.run, o.queues, o.corrupt = run+1, queues, o.corrupt+corrupt
	o.unreported, o.reporting, o.reported = unreported+lost-st.Lost, st.Reporting, st.Reported
	for i := range o.queues {
		o.advance(&o.queues[i], o.queues[i].acked)
	}
	return nil
}

// store writes the record of a batch.
func (o *Outbox) store(b *Batch, inFlight bool) error {
	h := segment.Head{Events: uint32(b.Events), Seq: b.Seq, Closed: b.Closed, Last: b.Last, Lost: b.Lost}
	o.buf = segment.Encode(o.buf, h, b.Data)
	fits := o.makeRoom(slices.Index(DropOrder, b.Kind)+1, int64(len(o.buf))+2*segment.BlockBytes)
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
	f, err := o.fileFor(b.Kind, int64(len(o.buf)))
	if err != nil {
		return err
	}
	if _, err := f.handle.WriteAt(o.buf, f.end.Off); err != nil {
		_ = f.handle.Truncate(f.end.Off)
		o.seal(f)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b.file, b.at = f, f.end
	if inFlight {
		o.queues[b.Kind].inFlight = b
	}
	f.end = f.end.After(len(b.Data), b.Events)
	f.bytes = f.end.Off
	return nil
}

// fileFor returns the open file of a kind, or a new one when the batch does not fit.
func (o *Outbox) fileFor(kind schema.Kind, bytes int64) (*file, error) {
	if f := o.open[kind]; f != nil {
		if f.end.Off == 0 || f.end.Off+bytes <= o.opts.SegmentBytes {
			return f, nil
		}
		if err := o.syncFile(f, true); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	q := &o.queues[kind]
	begin, number := q.end(), o.run<<32|o.made
	o.mu.Unlock()
	o.made++
	begin.Segment, begin.Off = number, 0
	name := segment.Name{Kind: kind, Number: number, Begin: begin, Lost: o.opts.Lost.Load()}
	handle, err := o.dir.Create(name.String())
	if err != nil {
		return nil, err
	}
	f := &file{Name: name, end: begin, open: true, handle: handle}
	o.open[kind] = f
	o.mu.Lock()
	defer o.mu.Unlock()
	q.files = append(q.files, f)
	o.advance(q, q.acked)
	return f, nil
}

// seal closes a file.
func (o *Outbox) seal(f *file) {
	o.open[f.Kind] = nil
	f.handle.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.open {
		f.open = false
		q := &o.queues[f.Kind]
		o.advance(q, q.acked) // all of it may be acked
	}
}

// syncFile syncs an open file with batches that are not acked. After an error Linux may have dropped its pages.
func (o *Outbox) syncFile(f *file, seal bool) (err error) {
	o.mu.Lock()
	waiting := o.queues[f.Kind].waiting()
	o.mu.Unlock()
	if waiting > 0 && f.synced < f.end.Off {
		err = f.handle.Sync()
		f.synced = f.end.Off
	}
	if seal || err != nil {
		o.seal(f)
	}
	return err
}

// syncAll syncs batches that are not acked, stores the positions of acked ones and deletes files that have no others.
func (o *Outbox) syncAll(seal bool) error {
	var errs []error
	for _, f := range o.open {
		if f != nil {
			errs = append(errs, o.syncFile(f, seal))
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
			if err := o.writing.Take(ctx, o.opts.Timeout, o.sync); err != nil && ctx.Err() == nil {
				o.fail(err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// sync tries again a disk that failed. On a full one it drops batches less precious than urgent ones.
func (o *Outbox) sync() error {
	if o.dir == nil {
		if err := o.enter(); err != nil {
			return err
		}
	}
	failed := !o.Stats().Writable
	if failed {
		o.saved = nil // to write it
	}
	err := o.syncAll(false)
	for failed && isFull(err) && o.evict(slices.Index(DropOrder, o.opts.Urgent())) {
		err = o.syncAll(false)
	}
	if err != nil || !failed {
		return err
	}
	o.mu.Lock()
	o.failing = false
	o.mu.Unlock()
	o.opts.Log.Info("outbox writable again", "dir", o.opts.Dir)
	o.opts.Changed()
	return nil
}

// sweep deletes the files in trash, after the state with their losses is stored. A full disk may need their room for
// the state.
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
	for _, f := range trash {
		if o.open[f.Kind] == f {
			o.seal(f)
		}
		if err := o.dir.Remove(f.String()); err != nil {
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

func (o *Outbox) closeFiles() {
	for kind, f := range o.open {
		if f != nil {
			f.handle.Close()
			o.open[kind] = nil
		}
	}
	o.dir.Close()
	o.dir, o.saved = nil, nil
}
