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

// written is a directory with memory batches 1 to n, closed in good order or not.
func written(t *testing.T, n int, closed bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "written")
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
	for id := 1; id <= n; id++ {
		pushID(s, schema.KindMemory, id, 1000)
	}
	for s.writeRound() {
	}
	if closed {
		s.finish()
	} else {
		s.crash()
	}
	return dir
}

// recordsOf are the offsets of a segment's records, and where they end.
func recordsOf(t *testing.T, path string) (offsets []int64) {
	t.Helper()
	_, number, _ := parseName(filepath.Base(path))
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, _, _, err := openSegment(root, filepath.Base(path), number)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := s.begin; at.off < s.end.off; {
		h, err := readHead(f, at.off, s.end.off)
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, at.off)
		at = at.behind(int(h.bytes), int(h.events))
	}
	return append(offsets, s.end.off)
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
}

// TestOutboxDamage: what was changed or cut off is lost and counted, nothing else is.
func TestOutboxDamage(t *testing.T) {
	all := from(1, 50)
	without := func(first, last int) (ids []int) {
		for _, id := range all {
			if id < first || id > last {
				ids = append(ids, id)
			}
		}
		return ids
	}
	const perSegment = 9
	tests := []struct {
		name   string
		closed bool
		spoil  func(t *testing.T, first, last string) // the oldest and the newest segment
		want   []int
		events uint64 // that are counted as lost
	}{
		{"nothing", true, func(*testing.T, string, string) {}, all, 0},
		{"nothing, after a crash", false, func(*testing.T, string, string) {}, all, 0},
		{"a byte of a batch", true, func(t *testing.T, first, _ string) { flip(t, first, recordsOf(t, first)[3]+headBytes+7) }, without(4, 4), 4},
		{"a byte of a head", true, func(t *testing.T, first, _ string) { flip(t, first, recordsOf(t, first)[3]+20) }, without(4, perSegment),
			4 + 5 + 6 + 7 + 8 + 9},
		{"a byte of a beginning", true, func(t *testing.T, first, _ string) { flip(t, first, 15) }, without(1, perSegment), 45},
		{"nothing but a bit of the form", true, func(t *testing.T, first, _ string) { flip(t, first, int64(len(segmentMagic))) }, all, 0},
		{"a byte of an ending", true, func(t *testing.T, first, _ string) {
			offsets := recordsOf(t, first)
			flip(t, first, offsets[len(offsets)-1]+9)
		}, all, 0},
		{"a segment", true, func(t *testing.T, first, _ string) {
			if err := os.Remove(first); err != nil {
				t.Fatal(err)
			}
		}, without(1, perSegment), 0},
		{"nothing of a segment", false, func(t *testing.T, _, last string) {
			_, number, _ := parseName(filepath.Base(last))
			if err := os.WriteFile(filepath.Join(filepath.Dir(last), segmentName(schema.KindMemory, number+1)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, all, 0},
		{"half a batch at the end", false, func(t *testing.T, _, last string) { cut(t, last, stat(t, last).Size()-100) }, without(50, 50), 50},
		{"half a head at the end", false, func(t *testing.T, _, last string) {
			offsets := recordsOf(t, last)
			cut(t, last, offsets[len(offsets)-2]+10)
		}, without(50, 50), 0},
		{"zeros at the end", false, func(t *testing.T, _, last string) {
			size := stat(t, last).Size()
			cut(t, last, size-100)
			cut(t, last, size+10_000)
		}, without(50, 50), 50},
		{"the cursor", true, func(t *testing.T, first, _ string) { flip(t, filepath.Join(filepath.Dir(first), cursorName), 30) }, all, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := written(t, 50, tt.closed)
			list := files(t, dir, "*.memory")
			if n := len(recordsOf(t, list[0])) - 1; n != perSegment {
				t.Fatalf("%d records in a segment", n)
			}
			tt.spoil(t, list[0], list[len(list)-1])
			s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
			same(t, "left", takeAll(t, s, schema.KindMemory), tt.want)
			l := s.level()
			if l.droppedEvents != tt.events || l.batches != 0 {
				t.Errorf("%d events are counted as lost, want %d; %d batches wait", l.droppedEvents, tt.events, l.batches)
			}
			if harmed := !strings.HasPrefix(tt.name, "nothing") && tt.name != "a segment"; harmed != (l.outbox.damaged == 1) {
				t.Errorf("damage is counted %d times", l.outbox.damaged)
			}
			pushID(s, schema.KindHost, 1, 100) // it tells
			s.finish()
			if left := files(t, dir, "*.memory"); len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}

// TestOutboxDamageIsToldOnce: what is lost with a damaged or cut off segment is seen once, and owed by one run after the other
// until one stores a batch that may tell it.
func TestOutboxDamageIsToldOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spoil  func(t *testing.T, first, last string)
		want   []int
		events uint64
	}{
		{"cut off", func(t *testing.T, _, last string) { cut(t, last, stat(t, last).Size()-100) }, from(1, 11), 12},
		{"first batch cut off", func(t *testing.T, _, last string) { cut(t, last, 500) }, from(1, 9), 10},
		{"damaged", func(t *testing.T, first, _ string) { flip(t, first, 15) }, from(10, 12), 45},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := written(t, 12, false)
			list := files(t, dir, "*.memory")
			tt.spoil(t, list[0], list[1])
			for i, lost := range []uint64{tt.events, tt.events, 0} {
				s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
				s.settle()
				if l := s.level(); l.droppedEvents != lost || (l.outbox.damaged > 0) != (i == 0) || l.batches < len(tt.want) {
					t.Errorf("%+v, want %d events lost", l, lost)
				}
				if i == 1 {
					pushID(s, schema.KindHost, 1, 100)
					s.writeRound()
				}
				if i == 2 {
					same(t, "left", takeAll(t, s, schema.KindMemory), tt.want)
				}
				s.crash()
			}
		})
	}
}

// TestOutboxDamagedAtTheCursor: what is damaged right behind what was acked counts, and it is said where nobody knows how much it is.
func TestOutboxDamagedAtTheCursor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spoil  func(t *testing.T, path string, fourth int64)
		events uint64
		says   string
	}{
		{"cut off", func(t *testing.T, path string, fourth int64) { cut(t, path, fourth+headBytes+10) }, 10, `events_lost="at least 10"`},
		{"a byte of a batch", func(t *testing.T, path string, fourth int64) { flip(t, path, fourth+headBytes+10) }, 10, `events_lost="at least 10"`},
		{"a byte of a head", func(t *testing.T, path string, fourth int64) { flip(t, path, fourth+10) }, 0, "events_lost=unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBooks(t, 1<<20, 100_000, 10_000)
			b.fill(schema.KindMemory, 3, 100)
			b.take(schema.KindMemory, 3)
			b.settle()
			b.fill(schema.KindMemory, 1, 100)
			b.s.crash()
			path := files(t, b.dir, "*.memory")[0]
			tt.spoil(t, path, recordsOf(t, path)[3])
			log := &logged{}
			s := spoolAt(t, b.dir, 1<<20, 100_000, 10_000, log.logger())
			if l := s.level(); l.outbox.damaged != 1 || l.droppedEvents != tt.events || l.batches != 0 || log.count(tt.says) != 1 {
				t.Errorf("%+v, it says %s", l, &log.text)
			}
		})
	}
}

func cut(t *testing.T, path string, bytes int64) {
	t.Helper()
	if err := os.Truncate(path, bytes); err != nil {
		t.Fatal(err)
	}
}

// TestOutboxDamagedWhileMemoryHasIt: of a damaged segment, what memory still has is not lost.
func TestOutboxDamagedWhileMemoryHasIt(t *testing.T) {
	dir := t.TempDir()
	s := spoolAt(t, dir, 4*1010, 1<<30, 100_000, quiet())
	for id := 1; id <= 10; id++ {
		pushID(s, schema.KindMemory, id, 1000)
		s.writeRound()
	}
	inMemory := int(s.queues[schema.KindMemory][0].seq)
	path := files(t, dir, "*.memory")[0]
	copied := files(t, copyDir(t, dir), "*.memory")[0]
	flip(t, path, recordsOf(t, copied)[1])
	same(t, "left", takeAll(t, s, schema.KindMemory), append([]int{1}, from(inMemory, 10)...))
	if l := s.level(); l.droppedN != uint64(inMemory-2) || inMemory < 5 {
		t.Errorf("%d batches are lost, memory had %d and later", l.droppedN, inMemory)
	}
}

// TestOutboxFormOfOneBit: a changed bit of the form does not make a file a newer program's.
func TestOutboxFormOfOneBit(t *testing.T) {
	for bit := range 8 {
		dir := written(t, 5, true)
		setForm(byte(segmentForm^1<<bit))(t, files(t, dir, "*.memory")[0])
		s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
		same(t, fmt.Sprint("bit ", bit), takeAll(t, s, schema.KindMemory), from(1, 5))
	}
}

// TestOutboxLeavesOthersFilesAlone, and what a newer form has.
func TestOutboxLeavesOthersFilesAlone(t *testing.T) {
	dir := written(t, 10, true)
	list := files(t, dir, "*.memory")
	setForm(nextForm)(t, list[0])
	for name, content := range map[string][]byte{"notes.txt": []byte("mine"), "12.memory": []byte("mine")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := &logged{}
	s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, log.logger())
	same(t, "left", takeAll(t, s, schema.KindMemory), from(10, 10))
	s.finish()
	for _, name := range []string{"notes.txt", "12.memory", filepath.Base(list[0])} {
		stat(t, filepath.Join(dir, name))
	}
	if log.count("left alone") != 1 {
		t.Errorf("it says %s", &log.text)
	}
}

// TestOutboxHangs: while the disk does not answer, memory alone goes on, also with the batch that is being written; it is said
// once, and when the disk answers it is used again, and nothing comes twice.
func TestOutboxHangs(t *testing.T) {
	for _, tt := range []struct {
		name string
		hang func(t *testing.T, s *spool) (answer func())
	}{
		{"at a batch", func(_ *testing.T, s *spool) func() {
			e := s.claim(schema.KindMemory)
			return func() {
				seg, err := s.write(schema.KindMemory, e)
				s.written(schema.KindMemory, e, seg, err)
			}
		}},
		{"at the cursor", func(t *testing.T, s *spool) func() {
			path := filepath.Join(s.outbox.dir, cursorName+".new")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			s.outbox.next++ // it has to be written
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.settle()
			}()
			awaits(t, "it is written", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return !s.outbox.began.IsZero()
			})
			return func() {
				f, err := os.Open(path)
				if err != nil {
					t.Error(err)
				}
				<-done
				f.Close()
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &logged{}
			s := spoolAt(t, t.TempDir(), 1<<20, 1<<30, 10_000, log.logger())
			pushID(s, schema.KindMemory, 1, 1000)
			answer := tt.hang(t, s)
			pushID(s, schema.KindMemory, 2, 1000)
			same(t, "at first", takeAll(t, s, schema.KindMemory), nil)
			s.mu.Lock()
			s.outbox.began = s.outbox.began.Add(-2 * hang)
			s.mu.Unlock()
			pushID(s, schema.KindMemory, 3, 1000)
			pushID(s, schema.KindMemory, 4, 1000)
			if e := try(s, schema.KindMemory); e == nil || len(s.wake[schema.KindMemory]) == 0 {
				t.Errorf("the hanging disk holds batches up: %v, woken %v", e == nil, len(s.wake[schema.KindMemory]) > 0)
			}
			same(t, "then", takeAll(t, s, schema.KindMemory), from(1, 4))
			if log.count("cannot be written") != 1 || log.count("not answered") != 1 {
				t.Errorf("it says %s", &log.text)
			}
			answer()
			s.settle()
			pushID(s, schema.KindMemory, 5, 1000)
			for s.writeRound() {
			}
			if l := s.level(); l.outbox.batches != 1 || l.unstored != 0 || l.outbox.failing || log.count("written again") != 1 {
				t.Errorf("%+v, it says %s", l, &log.text)
			}
			same(t, "at last", takeAll(t, s, schema.KindMemory), from(5, 5))
			if l := s.level(); l.batches != 0 || l.bytes != 0 || l.droppedN != 0 {
				t.Errorf("left: %+v", l)
			}
		})
	}
}

// TestOutboxVanishes: when the directory is removed or another takes its place, what only it held is counted, what memory has
// too is stored again, and what is in flight is acked as ever. The new directory is locked.
func TestOutboxVanishes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		vanish func(dir string) error
	}{
		{"removed", os.RemoveAll},
		{"another one", func(dir string) error { return errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)) }},
	} {
		for _, fromDisk := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", in flight from the disk ", fromDisk), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "outbox")
				log := &logged{}
				s := spoolAt(t, dir, 4*1010, 1<<30, 2_000, log.logger())
				for id := 1; id <= 10; id++ {
					pushID(s, schema.KindMemory, id, 1000)
					if s.writeRound(); id == 2 && !fromDisk {
						try(s, schema.KindMemory)
					}
				}
				if fromDisk {
					try(s, schema.KindMemory)
				}
				if err := tt.vanish(dir); err != nil {
					t.Fatal(err)
				}
				only, last := 0, 10-len(s.queues[schema.KindMemory]) // 2 to last are on the disk alone
				if !fromDisk {
					last++ // the first is in memory
				}
				for id := 2; id <= last; id++ {
					only += id
				}
				s.settle()
				for s.writeRound() {
				}
				if l := s.level(); only == 0 || l.droppedEvents != uint64(only) || l.unstored != 0 || l.outbox.failing || log.count("directory is gone") != 1 {
					t.Errorf("%d events were on the disk alone: %+v, it says %s", only, l, &log.text)
				}
				if _, _, err := openOutbox(outboxOptions{dir: dir, limit: 1 << 30, segment: 1000}, quiet()); err == nil {
					t.Error("a second producer is not refused")
				}
				s.acked(schema.KindMemory)
				s.finish()
				s = spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
				left := takeAll(t, s, schema.KindMemory)
				same(t, "left", left, from(left[0], 10))
				if sum := 10 * 11 / 2; only+1+(left[0]+10)*len(left)/2 != sum {
					t.Errorf("%d events are lost, of %d", only, sum)
				}
			})
		}
	}
}

// TestOutboxAwayAndBack: of a directory that goes and comes back, what earlier runs owe is taken over once.
func TestOutboxAwayAndBack(t *testing.T) {
	b := newBooks(t, 1<<20, 100_000, 10_000)
	b.fill(schema.KindMemory, 5, 1000)
	b.s.dropped = 500 // no batch tells it
	b.s.finish()
	b.start()
	move(t, b.dir, b.dir+".away")
	b.settle()
	if l := b.s.level(); l.droppedEvents != 550 {
		t.Fatalf("%+v", l)
	}
	if err := os.RemoveAll(b.dir); err != nil {
		t.Fatal(err)
	}
	move(t, b.dir+".away", b.dir)
	b.settle()
	b.take(schema.KindMemory, 5)
	b.settle()
	if l := b.s.level(); l.droppedEvents != 550 || len(b.seen) != 5 {
		t.Errorf("%+v, %d batches came", l, len(b.seen))
	}
}

// TestOutboxComesBackToWhatItLeft: what could not be read at one start is sent after a later one, also when newer batches were
// acked meanwhile.
func TestOutboxComesBackToWhatItLeft(t *testing.T) {
	for _, tt := range []struct {
		name        string
		spoil, mend func(t *testing.T, path string)
	}{
		{"newer form", setForm(nextForm), setForm(segmentForm)},
		{"unreadable", func(t *testing.T, path string) {
			move(t, path, path+".away")
			if err := os.Symlink(path, path); err != nil { // ELOOP
				t.Fatal(err)
			}
		}, func(t *testing.T, path string) { move(t, path+".away", path) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := written(t, 12, true)
			first := files(t, dir, "*.memory")[0] // 1 to 9
			tt.spoil(t, first)
			for id := 13; id <= 14; id++ { // two starts
				s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
				if id == 13 {
					same(t, "left", takeAll(t, s, schema.KindMemory), from(10, 12))
				}
				pushID(s, schema.KindMemory, id, 1000)
				s.finish()
			}
			tt.mend(t, first)
			s := spoolAt(t, dir, 1<<20, 1<<30, 10_000, quiet())
			same(t, "then", takeAll(t, s, schema.KindMemory), append(from(1, 9), from(13, 14)...))
			if s.finish(); len(files(t, dir, "*.memory")) > 0 {
				t.Errorf("files are left: %v", files(t, dir, "*.memory"))
			}
		})
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// setForm changes the form that a segment says to have.
func setForm(form byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(segmentMagic)] = form
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
