package outbox

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/outbox/segment"
	"github.com/gputap/gputap/schema"
)

var (
	errUnwritable = errors.New("the disk cannot be written")
	errFull       = errors.New("the outbox is full of more precious batches")
)

// Options of an Outbox. A duration or SegmentBytes of 0 stands for the default.
type Options struct {
	Dir      string
	MaxBytes int64 // of all files
	// Lost counts the events that this run lost. The outbox adds its own losses and those of earlier runs that none of
	// their acked batches reports.
	Lost *atomic.Uint64
	// Changed is called when Next or Stats.Bypass may now have something for another goroutine.
	Changed func()
	// Urgent returns the most precious kind of batches that a full disk has to make room for, or KindNone.
	Urgent func() schema.Kind
	Log    *slog.Logger

	SegmentBytes int64         // a file is closed at this size: 4 MiB
	SyncInterval time.Duration // files are synced, and a failed disk is tried again: 1 s
	Timeout      time.Duration // a disk that is silent for longer counts as failed: 5 s
	ReadTimeout  time.Duration // batches that cannot be read for longer are lost: 30 s
}

// Batch is one encoded batch.
type Batch struct {
	Kind   schema.Kind
	Data   []byte
	Seq    uint64
	Events int
	Lost   uint64       // events that its run had lost, as the batch reports
	Last   schema.KTime // time of its last event
	Closed int64        // wall time, ns

	Earlier bool // Next sets it for a batch of an earlier run

	file *file // nil: the outbox does not have it
	at   segment.Position
}

// Outbox is a directory of batches that outlive the producer. Append and Close belong to one goroutine, Next and Ack of
// a kind to one goroutine; Stats is safe for concurrent use. Changed and Urgent must not block.
type Outbox struct {
	opts    Options
	readers [schema.NumKinds]struct {
		turn segment.Turn
		buf  []byte
	}
	stop    context.CancelFunc
	syncing sync.WaitGroup

	writing segment.Turn // its holder alone writes, and uses the fields up to mu
	dir     *segment.Dir // nil: it was not entered
	open    [schema.NumKinds]*file
	made    uint64 // segments of this run
	saved   *state // as in its file, if this run wrote it
	buf     []byte

	mu          sync.Mutex // never held while waiting for the disk
	queues      [schema.NumKinds]queue
	run         uint64  // of the segments to be written; 0 until the directory was entered
	trash       []*file // to be deleted
	unreported  uint64  // losses of earlier runs that none of their acked batches reported
	reporting   uint64  // the run whose batch was acked last
	reported    uint64  // the greatest Lost of its acked batches
	failing     bool    // the disk cannot be written
	dropped     uint64
	writeErrors uint64
	corrupt     uint64
}

// Open takes over a directory with the batches of earlier runs. A disk that fails or is silent is no error: it is tried
// again. A directory that another producer uses, that others may write to or that this process may not write to is an
// error.
func Open(opts Options) (*Outbox, error) {
	opts.SegmentBytes = cmp.Or(opts.SegmentBytes, 4<<20)
	opts.SyncInterval = cmp.Or(opts.SyncInterval, time.Second)
	opts.Timeout = cmp.Or(opts.Timeout, 5*time.Second)
	opts.ReadTimeout = cmp.Or(opts.ReadTimeout, 30*time.Second)
	o := &Outbox{opts: opts, writing: segment.NewTurn()}
	for i := range o.readers {
		o.readers[i].turn = segment.NewTurn()
	}
	if err := o.writing.Take(context.Background(), opts.Timeout, o.enter); err != nil {
		mayRecover := errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) || errors.Is(err, segment.ErrSilent)
		if !mayRecover && !isFull(err) {
			return nil, err // somebody must correct it
		}
		o.fail(err)
	}
	if s := o.Stats(); s.Batches > 0 {
		opts.Log.Info("outbox holds batches of earlier runs; they are sent first",
			"dir", opts.Dir, "batches", s.Batches, "bytes", s.Bytes)
	}
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	o.syncing.Go(func() { o.syncUntil(ctx) })
	return o, nil
}

// Append stores a batch behind all others of its kind and returns when Linux has it, or when it is dropped because the
// outbox is full of more precious ones; it does not keep b.Data. A batch in flight is not dropped, and counts as lost
// only if it is not acked. After an error Append fails at once until the disk works again.
func (o *Outbox) Append(b *Batch, inFlight bool) error {
	if !o.Stats().Writable {
		return errUnwritable
	}
	o.writing <- struct{}{}
	defer func() { <-o.writing }()
	err := o.store(b, inFlight)
	if err != nil && !errors.Is(err, errFull) {
		o.fail(err)
	}
	return err
}

// Next returns the oldest batch of a kind that is not acked. It returns nil if the kind has no batch, or an earlier run
// still has batches of any kind. The batch is in flight and its Data valid until Ack. Batches that cannot be read are
// lost. The only error is that of ctx.
func (o *Outbox) Next(ctx context.Context, kind schema.Kind) (*Batch, error) {
	for {
		o.mu.Lock()
		q := &o.queues[kind]
		q.inFlight = nil
		if q.waiting() == 0 || o.oldestRun() < q.files[0].Run() {
			o.mu.Unlock()
			return nil, nil
		}
		b := &Batch{Kind: kind, Earlier: q.files[0].Run() < o.run, file: q.files[0], at: q.acked}
		q.inFlight = b
		o.mu.Unlock()
		h, data, err := o.read(ctx, b)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if o.fill(q, b, h, data, err) {
			return b, nil
		}
	}
}

// read retries unless the batch is corrupt or gone. It opens the file for each batch: that is little beside the round
// trip to NATS that follows.
func (o *Outbox) read(ctx context.Context, b *Batch) (segment.Head, []byte, error) {
	reader, dir := &o.readers[b.Kind], o.dir
	var head segment.Head
	err := reader.turn.Take(ctx, o.opts.ReadTimeout, func() error {
		for began := time.Now(); ; time.Sleep(o.opts.ReadTimeout / 30) {
			f, err := dir.Open(b.file.String())
			if err == nil {
				head, reader.buf, err = segment.Read(f, b.at.Off, reader.buf)
				f.Close()
			}
			gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrClosed)
			if err == nil || gone || errors.Is(err, segment.ErrCorrupt) || time.Since(began) > o.opts.ReadTimeout {
				return err
			}
		}
	})
	if errors.Is(err, segment.ErrSilent) || ctx.Err() != nil {
		return segment.Head{}, nil, err // the goroutine may still write the others
	}
	return head, reader.buf, err
}

// fill fills a batch that was read. After an error it counts the loss: one batch if its head is good, else the rest of
// the file.
func (o *Outbox) fill(q *queue, b *Batch, h segment.Head, data []byte, err error) bool {
	o.mu.Lock()
	if q.inFlight != b {
		o.mu.Unlock()
		return false // its file was dropped, and is counted
	}
	if err == nil {
		b.Data, b.Seq, b.Events, b.Lost, b.Last, b.Closed = data, h.Seq, int(h.Events), h.Lost, h.Last, h.Closed
		o.mu.Unlock()
		return true
	}
	o.corrupt++
	q.inFlight = nil
	batches, events := 1, uint64(h.Events)
	if errors.Is(err, segment.ErrCorruptData) {
		o.opts.Lost.Add(events)
		o.advance(q, b.at.After(int(h.Bytes), int(h.Events)))
	} else {
		batches, events = o.lose(q)
	}
	o.mu.Unlock()
	o.opts.Log.Warn("batches in the outbox cannot be read; they are lost",
		"segment", b.file.String(), "offset", b.at.Off, "batches", batches, "events", events, "err", err)
	o.opts.Changed()
	return false
}

// Ack removes a batch that NATS has stored, wherever it came from.
func (o *Outbox) Ack(b *Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := &o.queues[b.Kind]
	if q.inFlight == b {
		q.inFlight = nil
	}
	o.report(b)
	if b.file != nil && q.acked == b.at {
		o.advance(q, b.at.After(len(b.Data), b.Events))
	}
	if b.Earlier {
		o.opts.Changed()
	}
}

// Stats are the gauges and counters of an outbox.
type Stats struct {
	Bytes       int64                // of its files
	Batches     int                  // not acked
	Waiting     [schema.NumKinds]int // of them, by kind
	Dropped     uint64               // batches dropped to stay within MaxBytes, or on a full disk
	WriteErrors uint64
	Corrupt     uint64 // corrupt or unreadable records
	Writable    bool
	// Bypass says that a batch of this run that the outbox does not have may be published: the disk cannot be written,
	// and all batches that come before it are acked.
	Bypass [schema.NumKinds]bool
}

// Stats does not wait for the disk.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := Stats{
		Bytes: o.bytes(), Dropped: o.dropped, WriteErrors: o.writeErrors, Corrupt: o.corrupt, Writable: !o.failing,
	}
	mayBypass := o.failing && o.oldestRun() >= o.run
	for kind := range o.queues {
		s.Waiting[kind] = o.queues[kind].waiting()
		s.Batches += s.Waiting[kind]
		s.Bypass[kind] = mayBypass && s.Waiting[kind] == 0
	}
	return s
}

// Close syncs all batches and leaves the directory to the next run.
func (o *Outbox) Close() {
	o.stop()
	o.syncing.Wait()
	o.writing <- struct{}{}
	defer func() { <-o.writing }()
	if o.dir == nil {
		return
	}
	o.mu.Lock()
	for i := range o.queues {
		q := &o.queues[i]
		if b := q.inFlight; b != nil && b.file != nil && !slices.Contains(q.files, b.file) {
			o.opts.Lost.Add(uint64(b.Events)) // no file has it any more
		}
	}
	o.mu.Unlock()
	if err := o.syncAll(true); err != nil {
		o.fail(err)
	}
	o.closeFiles()
}

// fail counts an error of the disk. The log says once what to do about it.
func (o *Outbox) fail(err error) {
	o.mu.Lock()
	first := !o.failing
	o.writeErrors++
	o.failing = true
	o.mu.Unlock()
	if !first {
		return
	}
	remedy := "check its disk with dmesg, or set producer.outbox to another directory"
	switch {
	case isFull(err):
		remedy = "make room on its disk, or lower producer.outbox_max_bytes"
	case errors.Is(err, unix.EROFS):
		remedy = "mount its disk writable, or set producer.outbox to another directory"
	}
	o.opts.Log.Warn("outbox not writable; batches stay in memory; retrying",
		"dir", o.opts.Dir, "err", err, "remedy", remedy)
	o.opts.Changed()
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
