package producer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// books compare the events that were made with those that came and those that readers know to be lost, over all runs of a directory.
type books struct {
	t               *testing.T
	dir             string
	memory          int
	limit, segment  int64
	s               *spool
	run             uint64
	seq             [schema.NumKinds]uint64
	made, came      uint64
	acked           uint64 // since the cursor was written
	told            map[uint64]uint64
	seen            map[string]bool
	flying          [schema.NumKinds]*encoded
	decoder         *schema.Decoder
	fewer, moreThan uint64 // than made may be known, for what a kill or a cut took
}

func newBooks(t *testing.T, memory int, limit, segment int64) *books {
	b := &books{
		t: t, dir: filepath.Join(t.TempDir(), "outbox"), memory: memory, limit: limit, segment: segment,
		told: map[uint64]uint64{}, seen: map[string]bool{}, decoder: schema.NewDecoder(),
	}
	b.start()
	return b
}

// start begins the next run.
func (b *books) start() {
	b.t.Helper()
	b.run++
	b.seq, b.flying = [schema.NumKinds]uint64{}, [schema.NumKinds]*encoded{}
	b.s = spoolAt(b.t, b.dir, b.memory, b.limit, b.segment, quiet())
}

// push makes a batch, which says what is lost by now, as the batcher does.
func (b *books) push(kind schema.Kind, bytes int, events uint64) {
	b.seq[kind]++
	h := schema.Header{Run: b.run, Seq: b.seq[kind]}
	h.Lost[schema.LossSpool] = b.s.level().droppedEvents
	batch := schema.NewBuilder(schema.KindHost)
	batch.Linux = strings.Repeat("x", bytes)
	b.s.push(kind, batch.Encode(&h), encoded{seq: h.Seq, events: int(events), at: 1})
	b.made += events
}

// fill pushes and stores.
func (b *books) fill(kind schema.Kind, n, bytes int) {
	for range n {
		b.push(kind, bytes, 10)
		b.write()
	}
}

func (b *books) write() {
	for b.s.writeRound() {
	}
}

// fly has a publisher of a kind take a batch, if there is one.
func (b *books) fly(kind schema.Kind) bool {
	if b.flying[kind] == nil {
		b.flying[kind] = try(b.s, kind)
	}
	return b.flying[kind] != nil
}

// land has the bus ack what is in flight.
func (b *books) land(kind schema.Kind) {
	b.t.Helper()
	e := b.flying[kind]
	var batch schema.Batch
	if err := b.decoder.Decode(e.data, &batch); err != nil {
		b.t.Fatal(err)
	}
	b.told[batch.Run] = max(b.told[batch.Run], batch.Lost[schema.LossSpool])
	if id := fmt.Sprint(batch.Run, kind, batch.Seq); !b.seen[id] {
		b.seen[id] = true
		b.came += uint64(e.events)
		b.acked += uint64(e.events)
	}
	b.s.acked(kind)
	b.flying[kind] = nil
}

// take acks so many batches of a kind, if there are.
func (b *books) take(kind schema.Kind, most int) {
	b.t.Helper()
	for ; most > 0 && b.fly(kind); most-- {
		b.land(kind)
	}
}

func (b *books) settle() {
	if b.s.settle(); !b.s.outbox.failing {
		b.acked = 0
	}
}

// close takes all there is and compares.
func (b *books) close() {
	b.t.Helper()
	for idle := 0; idle < 3; idle++ {
		b.settle()
		b.write()
		for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
			for b.fly(kind) {
				b.land(kind)
				idle = 0
			}
		}
	}
	l := b.s.level()
	if l.batches != 0 || l.bytes != 0 {
		b.t.Fatalf("left: %+v", l)
	}
	b.told[b.run] = l.droppedEvents
	known := b.came
	for _, lost := range b.told {
		known += lost
	}
	if known+b.fewer < b.made || known > b.made+b.moreThan {
		b.t.Errorf("of %d events %d came and %v are told as lost: %d are unknown (at most %d may be)", b.made, b.came, b.told,
			int64(b.made-known), b.fewer)
	}
}

// TestOutboxCounts: what is made comes or is told as lost, once, however runs end.
func TestOutboxCounts(t *testing.T) {
	const memory, launch = schema.KindMemory, schema.KindLaunch
	finish := func(b *books) { b.s.finish() }
	crash := func(b *books) { b.s.crash() }
	tests := []struct {
		name string
		do   func(t *testing.T, b *books, end func(*books))
	}{
		{"given up, then ended", func(_ *testing.T, b *books, end func(*books)) {
			for b.s.level().droppedEvents == 0 {
				b.fill(memory, 1, 1000)
			}
			_ = b.s.sweep() // as before the next batch is written
			end(b)
			b.start()
			b.fill(memory, 1, 0)
		}},
		{"given up at the end", func(_ *testing.T, b *books, _ func(*books)) {
			b.fill(memory, 30, 1000)
			for b.s.level().outbox.bytes < 82_000 {
				b.fill(launch, 1, 1000)
			}
			b.push(memory, 8000, 10)
			b.push(launch, 8000, 10)
			b.push(schema.KindHost, 500, 0)
			b.s.finish()
			b.start()
		}},
		{"an earlier run, nothing acked", func(_ *testing.T, b *books, end func(*books)) { giveUpEarlier(b, 0, end) }},
		{"an earlier run, partly acked", func(_ *testing.T, b *books, end func(*books)) { giveUpEarlier(b, 4, end) }},
		{"an earlier run, segments acked", func(_ *testing.T, b *books, end func(*books)) { giveUpEarlier(b, 20, end) }},
		{"three runs", func(_ *testing.T, b *books, end func(*books)) {
			for range 3 {
				b.fill(memory, 130, 1000)
				b.settle()
				end(b)
				b.start()
			}
		}},
		{"memory told what it does not hold", func(_ *testing.T, b *books, end func(*books)) {
			b.s.finish()
			b.memory = 5000
			b.start()
			b.s.failed(errHangs)
			for range 50 {
				b.push(launch, 1000, 10)
			}
			b.push(memory, 1000, 10)
			b.push(schema.KindHost, 0, 0)
			b.settle()
			b.write()
			b.settle()
			end(b)
			b.start()
			for b.s.outbox.batches[schema.KindHost] > 0 {
				b.s.dropSegment(schema.KindHost)
			}
		}},
		{"directory gone", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			if err := os.RemoveAll(b.dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"directory gone while a batch is in flight", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			b.fly(memory)
			if err := os.RemoveAll(b.dir); err != nil {
				t.Fatal(err)
			}
			b.settle()
			b.s.finish()
			b.start()
		}},
		{"directory gone, and acked then", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			b.fly(memory)
			if err := os.RemoveAll(b.dir); err != nil {
				t.Fatal(err)
			}
			b.settle()
			b.take(memory, 1)
		}},
		{"directory replaced, and written on", func(t *testing.T, b *books, _ func(*books)) {
			b.s.finish()
			b.memory, b.segment = 3*1100, 2000
			b.start()
			b.fill(memory, 3, 1000)
			if err := errors.Join(os.Rename(b.dir, b.dir+".away"), os.Mkdir(b.dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			b.fill(memory, 6, 1000)
		}},
		{"file gone", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			if err := os.Remove(files(t, b.dir, "*.memory")[0]); err != nil {
				t.Fatal(err)
			}
		}},
		{"files gone, and written on", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			b.fill(memory, 5, 1000)
			for range 2 {
				for _, path := range files(t, b.dir, "*.memory") {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				b.settle()
				b.fill(memory, 5, 1000)
			}
			if want := uint64(500 + 5*10); b.s.level().droppedEvents != want {
				t.Errorf("%d events are lost: memory has all but those of the run before, %d", b.s.level().droppedEvents, want)
			}
			b.settle()
			end(b)
			b.start()
		}},
		{"head unreadable", func(t *testing.T, b *books, _ func(*books)) {
			lostBefore(b, finish)
			path := files(t, b.dir, "*.memory")[0]
			flip(t, path, recordsOf(t, path)[0]+20)
		}},
		{"beginning damaged, half acked", func(t *testing.T, b *books, _ func(*books)) {
			lostBefore(b, finish)
			b.take(memory, 2)
			b.s.finish()
			flip(t, files(t, b.dir, "*.memory")[0], 15)
			b.start()
		}},
		{"a disk that comes later is cut off", func(t *testing.T, b *books, end func(*books)) {
			b.fill(memory, 5, 1000)
			b.s.crash()
			path := files(t, b.dir, "*.memory")[0]
			cut(t, path, stat(t, path).Size()-100)
			there := b.dir
			b.dir = t.TempDir()
			b.start()
			b.s.leave()
			b.dir, b.s.outbox.dir = there, there
			b.s.outbox.failed(unix.EROFS)
			b.push(memory, 100, 10) // tells nothing
			b.settle()
			b.write()
			end(b)
			b.start()
		}},
		{"all acked, and cut in it", func(t *testing.T, b *books, _ func(*books)) {
			b.fill(memory, 5, 1000)
			b.take(memory, 5)
			b.settle()
			b.s.crash()
			path := files(t, b.dir, "*.memory")[0]
			cut(t, path, stat(t, path).Size()-100)
			b.start()
		}},
		{"a file that cannot be read for long", func(t *testing.T, b *books, end func(*books)) {
			b.s.dropped, b.made = 500, 500
			b.fill(memory, 1, 100) // tells it
			b.settle()
			end(b)
			path := files(t, b.dir, "*.memory")[0]
			move(t, path, path+".away")
			if err := os.Symlink(path, path); err != nil { // ELOOP
				t.Fatal(err)
			}
			for range 3 {
				b.start()
				b.settle()
				b.s.dropped, b.made = b.s.dropped+100, b.made+100
				b.settle()
				end(b)
			}
			b.start()
			if b.settle(); b.s.level().droppedEvents != 300 {
				t.Errorf("%d events are told as lost of 300 that runs lost since", b.s.level().droppedEvents)
			}
			end(b)
			move(t, path+".away", path)
			b.start()
		}},
		{"the cursor cannot be written", func(t *testing.T, b *books, end func(*books)) {
			b.s.dropped, b.made = 500, 500
			b.settle()
			end(b)
			obstacle := filepath.Join(b.dir, cursorName+".new")
			if err := os.Mkdir(obstacle, 0o700); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				b.start()
				b.settle()
				b.fill(memory, 1, 100)
				b.settle()
				b.take(memory, 1)
				end(b)
			}
			if err := os.Remove(obstacle); err != nil {
				t.Fatal(err)
			}
			b.start()
		}},
		{"directory gone, and cannot be made", func(t *testing.T, b *books, end func(*books)) {
			lostBefore(b, end)
			if err := errors.Join(os.RemoveAll(b.dir), os.WriteFile(b.dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			b.settle()
			b.fill(memory, 1, 100)
			b.take(memory, 1)
			if err := os.Remove(b.dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"refused", func(_ *testing.T, b *books, end func(*books)) {
			b.fill(memory, 2, 1000)
			for range 2 {
				b.s.refused(try(b.s, memory))
				b.s.acked(memory)
			}
			b.fill(memory, 1, 1000) // tells it
			b.s.refused(try(b.s, memory))
			b.s.acked(memory)
			b.settle()
			end(b)
			b.start()
		}},
	}
	for _, tt := range tests {
		for name, end := range map[string]func(*books){"finish": finish, "crash": crash} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				b := newBooks(t, 1<<20, 100_000, 10_000)
				tt.do(t, b, end)
				b.close()
			})
		}
	}
}

// giveUpEarlier has a run lose something, so many of its batches be acked, and a later one give up the rest.
func giveUpEarlier(b *books, acked int, end func(*books)) {
	b.fill(schema.KindMemory, 300, 1000)
	b.settle()
	end(b)
	b.start()
	b.take(schema.KindMemory, acked)
	b.settle()
	end(b)
	b.start()
	b.fill(schema.KindMemory, 300, 1000)
}

// lostBefore has a run lose something in memory and store batches that tell it.
func lostBefore(b *books, end func(*books)) {
	b.s.dropped, b.made = 500, 500
	b.fill(schema.KindMemory, 5, 1000)
	b.settle()
	end(b)
	b.start()
}
