package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

var (
	// ErrFull means that all that the outbox holds is more precious than the batch to be stored.
	ErrFull = errors.New("the outbox is full of more precious batches")

	errUnwritable = errors.New("the disk cannot be written")
	errSilent     = errors.New("the disk does not answer")
)

// Options of an Outbox. A duration or SegmentBytes of 0 stands for the default.
type Options struct {
	Dir           string
	MaxBytes      int64  // of all files
	Cluster, Host string // whose batches this run appends
	Run           string // unlike that of every other run
	// Lost counts the events that this run lost. The outbox adds its own losses and those of earlier runs that none of
	// their acked batches reports.
	Lost *atomic.Uint64
	// Changed is called when another goroutine may now get something from Next or Bypass. It must not block.
	Changed func()
	Log     *slog.Logger

	SegmentBytes int64         // a file is closed at this size: 4 MiB
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

	Earlier       bool   // Next sets it for a batch of an earlier run
	Cluster, Host string // Next sets the host that made the batch

	segment *segment // nil: the outbox does not have it
	at      position
}

// Outbox is a directory of batches that outlive the producer. Append, Sync and Close belong to one goroutine, Next and
// Ack of a kind to one goroutine; the other methods are safe for concurrent use.
type Outbox struct {
	opts     Options
	disk     writer
	readers  [schema.NumKinds]reader
	entering <-chan error // of a disk that is silent since Open; nil: it answered
	asked    atomic.Int64 // Unix ns since which the writing goroutine waits for the disk; 0: it does not wait

	mu          sync.Mutex
	queues      [schema.NumKinds]queue
	runs        map[string]*run
	next        uint64     // number of the next segment
	bytes       int64      // of all segments in queues
	trash       []*segment // to be deleted
	inherited   uint64     // losses of earlier runs, which become Lost when the state on the disk says so
	failing     bool       // the disk cannot be written
	dropped     uint64
	writeErrors uint64
	corrupt     uint64
}

// Open takes over a directory with the batches of earlier runs. A disk that fails or is silent is no error: Sync tries
// it again. A directory that another producer uses, that others may write to or that this process may not write to is
// an error.
func Open(opts Options) (*Outbox, error) {
	opts.SegmentBytes = cmp.Or(opts.SegmentBytes, 4<<20)
	opts.Timeout = cmp.Or(opts.Timeout, 5*time.Second)
	opts.ReadTimeout = cmp.Or(opts.ReadTimeout, 30*time.Second)
	o := &Outbox{opts: opts, next: 1, runs: map[string]*run{opts.Run: {}}}
	entered := make(chan error, 1)
	o.touch()
	go func() { entered <- o.enter() }()
	for {
		select {
		case err := <-entered:
			o.asked.Store(0)
			if err != nil && !mayRecover(err) {
				return nil, err
			}
			if err != nil {
				o.fail(err)
			}
			if s := o.Stats(); s.Batches > 0 {
				opts.Log.Info("outbox holds batches of earlier runs; they are sent first",
					"dir", opts.Dir, "batches", s.Batches, "bytes", s.Bytes)
			}
			return o, nil
		case <-time.After(opts.Timeout / 10):
			if o.Stats().Silent >= opts.Timeout {
				o.entering = entered
				o.fail(errSilent)
				return o, nil
			}
		}
	}
}

// Append stores a batch behind all others of its kind and returns when Linux has it; it does not keep b.Data. Next does
// not return one that is in flight already. After ErrFull the next batch may fit; after another error Append fails at
// once until Sync finds the disk working.
func (o *Outbox) Append(b *Batch, inFlight bool) error {
	if !o.Stats().Writable {
		return errUnwritable
	}
	o.touch()
	defer o.asked.Store(0)
	if err := o.sweep(); err != nil {
		o.fail(err)
		return err
	}
	need := int64(headBytes + len(b.Data))
	var err error
	o.mu.Lock()
	for err == nil && o.bytes+need+2*blockBytes > o.opts.MaxBytes {
		if !o.evict(b.Kind) {
			err = ErrFull
		}
	}
	o.mu.Unlock()
	if err != nil {
		return err
	}
	s, err := o.segmentFor(b.Kind, need)
	if err == nil {
		h := head{Events: uint32(b.Events), Seq: b.Seq, Closed: b.Closed, Last: b.Last, Lost: b.Lost}
		err = writeRecord(s.file, s.end.Off, h, b.Data)
		if err != nil {
			_ = s.file.Truncate(s.end.Off) // a cut that fails is made up for when the file is opened again
			o.seal(s, false)
		}
	}
	if err != nil {
		o.fail(err)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	q := &o.queues[b.Kind]
	b.segment, b.at = s, s.end
	if inFlight {
		q.inFlight = b
	}
	end := s.end.after(len(b.Data), b.Events)
	o.resize(s, end, end.Off)
	s.lost = max(s.lost, b.Lost)
	q.batches++
	return nil
}

// Next returns the oldest batch of a kind that is not acked. It returns nil if the kind has no batch, or an earlier run
// still has batches of any kind. The batch is in flight and its Data valid until Ack. Batches that cannot be read are
// lost. The only error is that of ctx.
func (o *Outbox) Next(ctx context.Context, kind schema.Kind) (*Batch, error) {
	for {
		o.mu.Lock()
		q := &o.queues[kind]
		if q.batches == 0 || o.precedes(q.segments[0].run, q.segments[0].number) {
			o.mu.Unlock()
			return nil, nil
		}
		s := q.segments[0]
		b := &Batch{Kind: kind, Earlier: s.earlier, Cluster: s.cluster, Host: s.host, segment: s, at: q.acked}
		limit := s.end.Off
		q.inFlight = b
		o.mu.Unlock()
		h, data, err := o.read(ctx, b, limit)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil, err
		}
		if o.take(q, b, h, data, err) {
			return b, nil
		}
	}
}

// Ack removes a batch that NATS has stored, wherever it came from.
func (o *Outbox) Ack(b *Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, id := &o.queues[b.Kind], o.opts.Run
	if b.segment != nil {
		id = b.segment.run
	}
	if r := o.runs[id]; r != nil {
		r.Reported = max(r.Reported, b.Lost)
	}
	if q.inFlight == b {
		q.inFlight = nil
	}
	if len(q.segments) > 0 && q.segments[0] == b.segment && q.acked == b.at {
		o.advance(q, b.at.after(len(b.Data), b.Events))
	}
	if b.Earlier {
		o.opts.Changed()
	}
}

// Bypass reports whether a batch of this run that the outbox does not have may be published now: the disk cannot be
// written, and all batches that come before it are acked.
func (o *Outbox) Bypass(kind schema.Kind) bool {
	if s := o.Stats(); s.Writable && s.Silent >= o.opts.Timeout {
		o.fail(errSilent)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failing && o.queues[kind].batches == 0 && !o.precedes(o.opts.Run, o.next)
}

// Waiting is how many batches of a kind are not acked.
func (o *Outbox) Waiting(kind schema.Kind) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queues[kind].batches
}

// Stats are the gauges and counters of an outbox.
type Stats struct {
	Bytes       int64  // of its files
	Batches     int    // not acked
	Dropped     uint64 // batches dropped to stay within MaxBytes, or on a full disk
	WriteErrors uint64
	Corrupt     uint64 // corrupt or unreadable records
	Writable    bool
	Silent      time.Duration // how long Append, Sync or Close has waited for the disk
}

// Stats does not wait for the disk.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := Stats{
		Bytes: o.bytes, Dropped: o.dropped, WriteErrors: o.writeErrors, Corrupt: o.corrupt, Writable: !o.failing,
	}
	for i := range o.queues {
		s.Batches += o.queues[i].batches
	}
	if asked := o.asked.Load(); asked != 0 {
		s.Silent = time.Since(time.Unix(0, asked))
	}
	return s
}

// touch restarts the clock of Silent: the disk answered, or gets a request.
func (o *Outbox) touch() { o.asked.Store(time.Now().UnixNano()) }

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

// mayRecover tells a disk that fails from a mistake that somebody must correct.
func mayRecover(err error) bool {
	return isFull(err) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS)
}
