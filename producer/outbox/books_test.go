package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// books compare the events that were made with those that came and those that readers know to be lost, over all runs
// of a directory.
type books struct {
	t          *testing.T
	opts       Options
	o          *Outbox
	run        uint64
	seq        [schema.NumKinds]uint64
	kept       [schema.NumKinds][]*Batch // the spool: batches that the outbox did not store
	flying     [schema.NumKinds]*Batch
	made, came uint64
	acked      uint64            // and reported, since the state was stored
	reported   map[uint64]uint64 // by run
	seen       map[string]bool
	fewer      uint64 // lower tolerance: events that a kill or a power cut took
	more       uint64 // upper tolerance: acked events that come again, or count as lost
}

func newBooks(t *testing.T, limit, segment int64) *books {
	b := &books{t: t, reported: map[uint64]uint64{}, seen: map[string]bool{}}
	b.opts = options(filepath.Join(t.TempDir(), "outbox"))
	b.opts.MaxBytes, b.opts.SegmentBytes = limit, segment
	b.start()
	return b
}

// start begins the next run.
func (b *books) start() {
	b.t.Helper()
	b.run++
	fresh := options(b.opts.Dir)
	b.opts.Lost = fresh.Lost
	b.seq, b.flying, b.kept = [schema.NumKinds]uint64{}, [schema.NumKinds]*Batch{}, [schema.NumKinds][]*Batch{}
	b.o = open(b.t, b.opts)
}

// lose has the spool drop events.
func (b *books) lose(events uint64) {
	b.opts.Lost.Add(events)
	b.made += events
}

// push makes a batch, which reports the losses so far, as the batcher does.
func (b *books) push(kind schema.Kind, bytes, events int) {
	b.seq[kind]++
	data := fmt.Appendf(nil, "%d %d ", b.run, b.seq[kind])
	b.kept[kind] = append(b.kept[kind], &Batch{
		Kind: kind, Data: append(data, make([]byte, bytes)...), Seq: b.seq[kind], Events: events,
		Lost: b.opts.Lost.Load(), Closed: 1,
	})
	b.made += uint64(events)
}

// store appends batches of the spool until the outbox fails.
func (b *books) store() {
	for kind := range b.kept {
		for len(b.kept[kind]) > 0 {
			first := b.kept[kind][0]
			if b.o.Append(first, first == b.flying[kind]) != nil {
				break
			}
			b.kept[kind] = b.kept[kind][1:]
		}
	}
}

// fill pushes and stores.
func (b *books) fill(kind schema.Kind, n, bytes int) {
	for range n {
		b.push(kind, bytes, 10)
		b.store()
	}
}

// fly has a publisher take a batch, if there is one.
func (b *books) fly(kind schema.Kind) bool {
	if b.flying[kind] == nil {
		b.flying[kind] = next(b.t, b.o, kind)
	}
	if b.flying[kind] == nil && b.o.Stats().Bypass[kind] && len(b.kept[kind]) > 0 {
		b.flying[kind] = b.kept[kind][0]
	}
	return b.flying[kind] != nil
}

// land acks the batch in flight.
func (b *books) land(kind schema.Kind) {
	b.t.Helper()
	e := b.flying[kind]
	var run, seq uint64
	if _, err := fmt.Sscanf(string(e.Data), "%d %d ", &run, &seq); err != nil || seq != e.Seq {
		b.t.Fatalf("%s: %.20q is no batch: %v", kind, e.Data, err)
	}
	b.acked += e.Lost - min(e.Lost, b.reported[run])
	b.reported[run] = max(b.reported[run], e.Lost)
	if id := fmt.Sprint(run, kind, seq); !b.seen[id] {
		b.seen[id] = true
		b.came += uint64(e.Events)
		b.acked += uint64(e.Events)
	}
	b.done(kind)
}

// reject counts the batch in flight as lost, as if NATS had rejected it.
func (b *books) reject(kind schema.Kind) {
	b.flying[kind].Lost = 0
	b.opts.Lost.Add(uint64(b.flying[kind].Events))
	b.done(kind)
}

func (b *books) done(kind schema.Kind) {
	e := b.flying[kind]
	b.flying[kind] = nil
	if len(b.kept[kind]) > 0 && b.kept[kind][0] == e {
		b.kept[kind] = b.kept[kind][1:]
	}
	b.o.Ack(e)
}

// take acks so many batches of a kind, if there are.
func (b *books) take(kind schema.Kind, most int) {
	b.t.Helper()
	for ; most > 0 && b.fly(kind); most-- {
		b.land(kind)
	}
}

func (b *books) sync() {
	if b.o.syncNow(); b.o.Stats().Writable {
		b.acked = 0
	}
}

// finish ends a run in order. Batches that the outbox did not store are lost.
func (b *books) finish() {
	b.sync()
	b.store()
	for _, q := range b.kept {
		for _, e := range q {
			b.opts.Lost.Add(uint64(e.Events))
		}
	}
	b.o.Close()
}

// drain takes all there is.
func (b *books) drain() {
	b.t.Helper()
	left := 0
	for idle := 0; idle < 3; idle++ {
		if n := b.o.Stats().Batches; n != left { // some of an earlier run were lost
			left, idle = n, 0
		}
		b.sync()
		b.store()
		for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
			for b.fly(kind) {
				b.land(kind)
				idle = 0
			}
		}
	}
	if s := b.o.Stats(); s.Batches != 0 {
		b.t.Fatalf("left: %+v", s)
	}
}

// balance takes all there is and compares.
func (b *books) balance() {
	b.t.Helper()
	b.drain()
	b.reported[b.run] = b.opts.Lost.Load()
	known := b.came
	for _, lost := range b.reported {
		known += lost
	}
	if known+b.fewer < b.made || known > b.made+b.more {
		b.t.Errorf("of %d events %d came and %v are reported as lost; missing: %d; tolerance: %d missing, %d surplus",
			b.made, b.came, b.reported, int64(b.made-known), b.fewer, b.more)
	}
}

// giveUpEarlier has a run lose something, so many of its batches be acked, and a later one drop the rest.
func giveUpEarlier(b *books, acked int, end func(*books)) {
	b.fill(memory, 300, 1000)
	b.sync()
	end(b)
	b.start()
	b.take(memory, acked)
	b.sync()
	end(b)
	b.start()
	b.fill(memory, 300, 1000)
}

// lostBefore has a run lose something in memory and store batches that report it.
func lostBefore(b *books, end func(*books)) {
	b.lose(500)
	b.fill(memory, 5, 1000)
	b.sync()
	end(b)
	b.start()
}

// TestLossIsReportedOnce: every event comes or is reported as lost, once, however runs end.
func TestLossIsReportedOnce(t *testing.T) {
	t.Parallel()
	finish := (*books).finish
	crash := func(b *books) { b.o.crash() }
	tests := []struct {
		name string
		do   func(t *testing.T, b *books, end func(*books))
	}{
		{"dropped, then ended", func(_ *testing.T, b *books, end func(*books)) {
			b.fill(memory, 150, 1000) // more than there is room for
			_ = b.o.sweep()           // as before the next batch is written
			end(b)
			b.start()
			b.fill(memory, 1, 0)
		}},
		{"refused at the end", func(_ *testing.T, b *books, _ func(*books)) {
			b.fill(memory, 30, 1000)
			for b.o.Stats().Bytes < 82_000 {
				b.fill(launch, 1, 1000)
			}
			b.push(memory, 8000, 10)
			b.push(launch, 8000, 10)
			b.push(host, 500, 0)
			b.finish()
			b.start()
		}},
		{"an earlier run, nothing acked", func(_ *testing.T, b *books, end func(*books)) { giveUpEarlier(b, 0, end) }},
		{"an earlier run, partly acked", func(_ *testing.T, b *books, end func(*books)) { giveUpEarlier(b, 4, end) }},
		{"an earlier run, segments acked", func(_ *testing.T, b *books, end func(*books)) {
			giveUpEarlier(b, 20, end)
		}},
		{"three runs", func(_ *testing.T, b *books, end func(*books)) {
			for range 3 {
				b.fill(memory, 130, 1000)
				b.sync()
				end(b)
				b.start()
			}
		}},
		{"reported by batches that are dropped", func(_ *testing.T, b *books, end func(*books)) {
			b.lose(490)
			b.push(memory, 1000, 10)
			b.push(host, 0, 0)
			b.store()
			b.sync()
			end(b)
			b.start()
			for b.o.evict(len(DropOrder)) {
			}
		}},
		{"directory removed", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			if err := os.RemoveAll(b.opts.Dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"directory replaced", func(t *testing.T, b *books, _ func(*books)) {
			b.fill(memory, 3, 1000)
			if err := errors.Join(os.Rename(b.opts.Dir, b.opts.Dir+".away"), os.Mkdir(b.opts.Dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			b.fill(memory, 6, 1000)
		}},
		{"directory removed while a batch is in flight", func(t *testing.T, b *books, _ func(*books)) {
			b.fill(memory, 6, 1000)
			b.fly(memory)
			if err := os.RemoveAll(b.opts.Dir); err != nil {
				t.Fatal(err)
			}
			b.sync()
			b.land(memory)
		}},
		{"file removed", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			if err := os.Remove(files(t, b.opts.Dir, "*.memory")[0]); err != nil {
				t.Fatal(err)
			}
		}},
		{"open file removed, and written on", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			b.fill(memory, 5, 1000)
			for _, path := range files(t, b.opts.Dir, "*.memory") {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			b.take(memory, 20)
			b.sync()
			if want := uint64(500 + 5*10 + 5*10); b.opts.Lost.Load() != want {
				t.Errorf("%d events are lost, want %d", b.opts.Lost.Load(), want)
			}
			b.fill(memory, 5, 1000)
			b.sync()
			end(b)
			b.start()
		}},
		{"head corrupt", func(t *testing.T, b *books, _ func(*books)) {
			lostBefore(b, finish)
			path := files(t, b.opts.Dir, "*.memory")[0]
			flip(t, path, recordsOf(t, path)[0]+20)
		}},
		{"first record corrupt, half acked", func(t *testing.T, b *books, _ func(*books)) {
			lostBefore(b, finish)
			b.take(memory, 2)
			b.finish()
			flip(t, files(t, b.opts.Dir, "*.memory")[0], 15)
			b.start()
		}},
		{"all acked, and cut off", func(t *testing.T, b *books, _ func(*books)) {
			b.fill(memory, 5, 1000)
			b.take(memory, 5)
			b.sync()
			b.o.crash()
			path := files(t, b.opts.Dir, "*.memory")[0]
			cut(t, path, stat(t, path).Size()-100)
			b.start()
		}},
		{"the state cannot be written", func(t *testing.T, b *books, end func(*books)) {
			b.lose(500)
			b.sync()
			end(b)
			obstacle := filepath.Join(b.opts.Dir, "state"+".new")
			if err := os.Mkdir(obstacle, 0o700); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				b.start()
				b.sync()
				b.fill(memory, 1, 100)
				b.sync()
				b.take(memory, 1)
				end(b)
			}
			if err := os.Remove(obstacle); err != nil {
				t.Fatal(err)
			}
			b.start()
		}},
		{"rejected", func(_ *testing.T, b *books, end func(*books)) {
			b.fill(memory, 2, 1000)
			for range 2 {
				b.fly(memory)
				b.reject(memory)
			}
			b.fill(memory, 1, 1000) // reports it
			b.fly(memory)
			b.reject(memory)
			b.sync()
			end(b)
			b.start()
		}},
		{"reported from memory", func(_ *testing.T, b *books, end func(*books)) {
			b.lose(500)
			b.o.fail(unix.EIO)
			b.fill(memory, 1, 1000)
			b.take(memory, 1)
			b.sync()
			end(b)
			b.start()
		}},
	}
	for _, tt := range tests {
		for name, end := range map[string]func(*books){"closed": finish, "killed": crash} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				t.Parallel()
				b := newBooks(t, 100_000, 10_000)
				tt.do(t, b, end)
				b.balance()
			})
		}
	}
}

// TestLossOverManyRuns: outages that last over several runs, with more batches than the outbox may hold.
func TestLossOverManyRuns(t *testing.T) {
	t.Parallel()
	for _, counts := range [][]int{{90, 90, 300}, {90, 90, 60}, {300, 20, 75}, {300, 300, 1}} {
		killed := func(b *books) { b.o.crash() }
		for name, end := range map[string]func(*books){"closed": (*books).finish, "killed": killed} {
			t.Run(fmt.Sprint(counts, name), func(t *testing.T) {
				t.Parallel()
				b := newBooks(t, 100_000, 10_000)
				for i, n := range counts {
					if i > 0 {
						end(b)
						b.start()
					}
					b.fill(memory, n, 1000)
					b.fill(memory, 2, 0)
				}
				b.balance()
				if b.came == b.made {
					t.Error("nothing was lost: nothing is shown")
				}
			})
		}
	}
}
