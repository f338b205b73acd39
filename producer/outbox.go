package producer

import (
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// outbox is the spool's disk: a directory of segments. A batch is written there before it is published, and read from
// there when memory had no room to keep it, so what is not acked outlives the producer and the host's Linux.
//
// Order. Per kind the records of the segments, by number, are the batches in the order in which they were closed, runs
// one after the other. Batches that memory alone holds, since the disk could not be written, come after all of them.
// No batch is given out while one of an earlier run waits, of whatever kind: a reader that hears of a new boot has all of
// the one before.
//
// Loss. Segments are synced every syncEvery while something in them is not acked: a power cut takes what came after, a
// crash of the producer nothing that was written. The cursor may be behind: some batches are then sent again.
//
// Count. What a run lost is told by its batches. What no acked batch has told is a debt, which the cursor keeps: no file with
// lost events goes before it is written. When nothing of a run waits any more, the present one takes its debt over as a loss of
// its own, once the cursor on the disk says so.
//
// Bound. Beyond limit the oldest segments of the least precious kind go, never one with a batch in flight. A batch that
// is less precious than all that could go is given up itself. On a full disk segments go, too, for what is more precious than
// they are, once it takes half of the memory.
//
// It has no lock of its own: what is not said otherwise is guarded by the spool's mu.
type outbox struct {
	dir     string
	limit   int64
	segment int64 // bytes at which a segment is closed
	self    origin
	run     string
	log     *slog.Logger

	segments [schema.NumKinds][]*segment // oldest first; the last may be open
	at       [schema.NumKinds]mark       // first record that is not acked; no segment: nothing is there
	batches  [schema.NumKinds]int        // from there on
	bytes    int64
	next     uint64                  // number of the next segment
	trash    []*segment              // to be removed: acked or given up, which is counted
	torn     []*segment              // to be closed where they are cut off: what was behind is counted
	kept     [schema.NumKinds]uint64 // least number of a segment that could not be taken; 0: none
	lastKept uint64                  // greatest of all kinds
	debts    map[string]debt         // by run: what earlier ones have not told, and what this one has
	answers  chan struct{}           // one for each file that enter has read
	late     chan entered            // what is found, while the disk has not answered since the start; nil: it has
	failing  bool                    // the disk cannot be written: the spool goes on in memory
	bad      error                   // why the disk was last found bad; nil since something was synced again
	said     bool                    // that it is bad
	began    time.Time               // when it was asked for what it has not answered yet; zero: nothing
	writeErr uint64
	damaged  uint64 // times that something else was read than was written
	gone     uint64 // batches given up for limit, or on a full disk

	writer writer // of the writing goroutine
}

const (
	syncEvery    = time.Second
	segmentBytes = 4 << 20
	shareBytes   = 4 << 10 // a file's least share of the disk
)

// outboxOptions is what is set of an outbox.
type outboxOptions struct {
	dir     string
	limit   int64
	segment int64
	self    origin // of the batches that will come
	run     string // of this producer, unlike any other of this directory
}

// openOutbox takes the directory and what earlier runs left in it. A directory of others, or one that cannot be used
// for reasons other than a bad disk, is an error. lost is the events in what is damaged.
func openOutbox(opts outboxOptions, log *slog.Logger) (o *outbox, lost uint64, err error) {
	o = &outbox{
		dir: opts.dir, limit: opts.limit, segment: opts.segment, self: opts.self, run: opts.run, log: log, next: 1,
		debts: map[string]debt{opts.run: {}}, answers: make(chan struct{}, 1),
	}
	late := make(chan entered, 1)
	go func() {
		found, err := o.enter()
		late <- entered{found, err}
	}()
	found, err := o.await(late)
	switch {
	case err == nil:
		o.writer.began(&found)
		lost = o.adopt(found)
		o.greet()
		return o, lost, nil
	case badDisk(err) || errors.Is(err, errHangs):
		o.failed(err)
		o.report(o.news())
		return o, 0, nil
	}
	return nil, 0, err
}

// await gives what enter found, unless the disk does not answer for hang. One that is slow is waited for: what is there comes first.
func (o *outbox) await(late chan entered) (found, error) {
	for {
		select {
		case e := <-late:
			return e.found, e.err
		case <-o.answers:
		case <-time.After(hang):
			o.late = late
			return found{}, errHangs
		}
	}
}

// answered says that the disk has.
func (o *outbox) answered() {
	select {
	case o.answers <- struct{}{}:
	default:
	}
}

// badDisk tells a disk that may get better from a mistake that somebody must correct.
func badDisk(err error) bool {
	for _, no := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// adopt makes what was found ours. lost is the events in what is damaged.
func (o *outbox) adopt(f found) (lost uint64) {
	o.next = max(o.next, f.next, f.at.next)
	o.trash = append(o.trash, f.trash...)
	o.torn = append(o.torn, f.torn...)
	o.damaged += f.damaged
	o.kept, o.lastKept = f.kept, f.lastKept
	for kind, list := range f.segments {
		kind := schema.Kind(kind)
		for _, s := range list {
			o.bytes += s.share()
			o.batches[kind] += s.end.batches
		}
		o.segments[kind] = list
		if len(list) > 0 {
			o.at[kind] = list[0].begin
			o.advance(kind, f.first[kind])
		}
	}
	if d := o.debts[o.run]; d.first == 0 {
		d.first = o.next
		o.debts[o.run] = d
	}
	for run, d := range f.at.debts {
		if run != o.run { // it knows better
			d.told = max(d.told, o.debts[run].told)
			o.debts[run] = d
		}
	}
	for _, list := range o.segments {
		for _, s := range list {
			if d := o.debts[s.run]; s.run != "" && s.lost > d.lost { // else nobody knows whose it is
				d.lost = s.lost
				o.debts[s.run] = d
			}
		}
	}
	return f.lost
}

// greet says what earlier runs left. Nobody else is there yet.
func (o *outbox) greet() {
	if l := o.level(); l.batches > 0 {
		o.log.Info("the outbox holds batches of earlier runs: they are sent first", "dir", o.dir, "batches", l.batches, "bytes", l.bytes)
	}
}

// share is what a segment takes of the limit.
func (s *segment) share() int64 { return (s.bytes + shareBytes - 1) / shareBytes * shareBytes }

// head is the first record that is not acked.
func (o *outbox) head(kind schema.Kind) (mark, bool) { return o.at[kind], o.batches[kind] > 0 }

// comes reports whether it is the turn of a run: segments of earlier ones have smaller numbers, since a number is never used again.
func (o *outbox) comes(run string, number uint64) bool {
	for kind, n := range o.batches {
		if first := o.at[kind].seg; n > 0 && first.run != run && first.number < number {
			return false
		}
	}
	return true
}

// advance says that all before p is done with.
func (o *outbox) advance(kind schema.Kind, p mark) {
	o.batches[kind] -= p.batches - o.at[kind].batches
	o.at[kind] = p
	if p.seg.sealed && p.off >= p.seg.end.off {
		o.remove(kind, 0)
	}
}

// remove takes a segment out; its records from at on, if any, are not counted any more.
func (o *outbox) remove(kind schema.Kind, i int) {
	s := o.segments[kind][i]
	o.segments[kind] = append(o.segments[kind][:i], o.segments[kind][i+1:]...)
	o.bytes -= s.share()
	o.trash = append(o.trash, s)
	left := s.end.batches
	if o.at[kind].seg == s {
		left -= o.at[kind].batches
		o.at[kind] = mark{}
		if rest := o.segments[kind]; i < len(rest) {
			o.at[kind] = rest[i].begin
		}
	}
	o.batches[kind] -= left
}

// oldest is the first segment of a kind that holds something and may go: not the one of the batch in flight.
func (o *outbox) oldest(kind schema.Kind, inFlight *segment) (i int, ok bool) {
	for i, s := range o.segments[kind] {
		if s != inFlight {
			return i, true
		}
	}
	return 0, false
}

// left is how many batches and events of a segment are not acked.
func (o *outbox) left(kind schema.Kind, s *segment) (batches int, events uint64) {
	if o.at[kind].seg == s {
		return s.end.batches - o.at[kind].batches, s.end.events - o.at[kind].events
	}
	return s.end.batches, s.end.events
}

// failed counts an error of the disk: the spool goes on in memory. report says it when the lock is free.
func (o *outbox) failed(err error) {
	o.writeErr++
	o.failing = true
	o.bad = err
}

// news tells once that the disk is bad when it was not, and the other way round.
func (o *outbox) news() (bad error, is bool) {
	is = o.said != (o.bad != nil)
	o.said = o.bad != nil
	return o.bad, is
}

// report says what news told, without the lock.
func (o *outbox) report(bad error, is bool) {
	switch {
	case !is:
	case bad != nil:
		o.log.Warn("the outbox cannot be written: batches are kept in memory only, and it is tried again every second",
			"dir", o.dir, "err", bad, "remedy", remedy(bad))
	default:
		o.log.Info("the outbox is written again", "dir", o.dir)
	}
}

func remedy(err error) string {
	switch {
	case isFull(err):
		return "make room on its disk, or lower producer.outbox_max_bytes"
	case errors.Is(err, unix.EROFS):
		return "mount its disk writable, or set producer.outbox to another directory"
	}
	return "look at its disk (dmesg), or set producer.outbox to another directory"
}

// outboxLevel is what an outbox holds and what befell it.
type outboxLevel struct {
	bytes    int64
	batches  int
	gone     uint64
	writeErr uint64
	damaged  uint64
	failing  bool
}

func (o *outbox) level() outboxLevel {
	l := outboxLevel{bytes: o.bytes, gone: o.gone, writeErr: o.writeErr, damaged: o.damaged, failing: o.failing}
	for _, n := range o.batches {
		l.batches += n
	}
	return l
}
