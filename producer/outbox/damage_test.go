package outbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/outbox/segment"
)

// written is a directory with memory batches 1 to n, of a run that was closed, or that crashed.
func written(t *testing.T, n int, closed bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "written")
	o := open(t, options(dir))
	fill(t, o, memory, 1, n, 1000)
	if closed {
		o.Close()
	} else {
		o.crash()
	}
	return dir
}

// recordsOf are the offsets of a segment's batches, and their end.
func recordsOf(t *testing.T, path string) []int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	offsets := []int64{0}
	for {
		last := offsets[len(offsets)-1]
		h, err := segment.ReadHead(f, last)
		if err != nil {
			return offsets
		}
		offsets = append(offsets, last+segment.HeadBytes+int64(h.Bytes))
	}
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[off] ^= 0x10
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, path string, bytes int64) {
	t.Helper()
	if err := os.Truncate(path, bytes); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestDamage: records that were changed or cut off are lost and counted; all others come.
func TestDamage(t *testing.T) {
	t.Parallel()
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
		events uint64 // that count as lost
	}{
		{"nothing", true, func(*testing.T, string, string) {}, all, 0},
		{"nothing, after a crash", false, func(*testing.T, string, string) {}, all, 0},
		{"byte of a batch", true, func(t *testing.T, first, _ string) {
			flip(t, first, recordsOf(t, first)[3]+segment.HeadBytes+7)
		}, without(4, 4), 4},
		{"byte of a batch before a crash", false, func(t *testing.T, _, last string) {
			flip(t, last, recordsOf(t, last)[3]+segment.HeadBytes+7)
		}, without(49, 49), 49},
		{"byte of a head", true, func(t *testing.T, first, _ string) {
			flip(t, first, recordsOf(t, first)[3]+20)
		}, without(4, perSegment), 39},
		{"byte of the first record", true, func(t *testing.T, first, _ string) {
			flip(t, first, 15)
		}, without(1, perSegment), 45},
		{"byte of the last first record", true, func(t *testing.T, _, last string) {
			flip(t, last, 15)
		}, without(46, 50), 46 + 47 + 48 + 49 + 50},
		{"first segment removed", true, func(t *testing.T, first, _ string) {
			remove(t, first)
		}, without(1, perSegment), 45},
		{"last segment removed", true, func(t *testing.T, _, last string) {
			remove(t, last)
		}, without(46, 50), 46 + 47 + 48 + 49 + 50},
		{"nothing of a segment", false, func(t *testing.T, _, last string) {
			n, _ := segment.Parse(filepath.Base(last))
			n.Number++
			n.Begin.Batches, n.Begin.Events = 50, sum(all)
			if err := os.WriteFile(filepath.Join(filepath.Dir(last), n.String()), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, all, 0},
		{"half a batch at the end", false, func(t *testing.T, _, last string) {
			cut(t, last, stat(t, last).Size()-100)
		}, without(50, 50), 50},
		{"half a head at the end", false, func(t *testing.T, _, last string) {
			offsets := recordsOf(t, last)
			cut(t, last, offsets[len(offsets)-2]+10)
		}, without(50, 50), 0},
		{"zeros at the end", false, func(t *testing.T, _, last string) {
			size := stat(t, last).Size()
			cut(t, last, size-100)
			cut(t, last, size+10_000)
		}, without(50, 50), 50},
		{"state", true, func(t *testing.T, first, _ string) {
			flip(t, filepath.Join(filepath.Dir(first), "state"), 30)
		}, all, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := written(t, 50, tt.closed)
			list := files(t, dir, "*.memory")
			if n := len(recordsOf(t, list[0])) - 1; n != perSegment {
				t.Fatalf("%d records in a segment", n)
			}
			tt.spoil(t, list[0], list[len(list)-1])
			o := open(t, options(dir))
			same(t, "left", takeAll(t, o, memory), tt.want)
			o.syncNow()
			if lost := o.opts.Lost.Load(); lost != tt.events || o.Stats().Batches != 0 {
				t.Errorf("%d events are lost, want %d; %d batches wait", lost, tt.events, o.Stats().Batches)
			}
			if harmed := strings.HasPrefix(tt.name, "byte of"); harmed && o.Stats().Corrupt == 0 {
				t.Error("corruption is not counted")
			}
			o.Close()
			if left := files(t, dir, "*.memory"); len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}

// TestDamageIsCountedOnce: only the next run counts the losses of a damaged or cut off segment.
func TestDamageIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		closed bool
		spoil  func(t *testing.T, last string)
		events uint64
	}{
		{"damaged", true, func(t *testing.T, last string) { flip(t, last, 15) }, 46 + 47 + 48 + 49 + 50},
		{"cut off", false, func(t *testing.T, last string) { cut(t, last, stat(t, last).Size()-100) }, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := written(t, 50, tt.closed)
			list := files(t, dir, "*.memory")
			tt.spoil(t, list[len(list)-1])
			for i := range 3 {
				o := open(t, options(dir))
				takeAll(t, o, memory)
				o.syncNow()
				if lost := o.opts.Lost.Load(); lost != tt.events {
					t.Errorf("start %d: %d events are lost, want %d", i, lost, tt.events)
				}
				o.crash() // no batch reported it
			}
			o := open(t, options(dir))
			o.Ack(&Batch{Kind: host, Lost: tt.events})
			o.Close()
			if o = open(t, options(dir)); o.opts.Lost.Load() != 0 {
				t.Errorf("%d events are lost once more", o.opts.Lost.Load())
			}
		})
	}
}

// TestCutOffBehindAckedBatches: a cut behind the acked batches loses events, a cut before the last acked one does not.
func TestCutOffBehindAckedBatches(t *testing.T) {
	t.Parallel()
	for acked, want := range map[int]uint64{4: 5, 5: 0} {
		dir := t.TempDir()
		o := open(t, options(dir))
		fill(t, o, memory, 1, 5, 1000)
		for range acked {
			o.Ack(next(t, o, memory))
		}
		o.syncNow()
		o.crash()
		path := files(t, dir, "*.memory")[0]
		cut(t, path, stat(t, path).Size()-100)
		o = open(t, options(dir))
		takeAll(t, o, memory)
		if lost := o.opts.Lost.Load(); lost != want || o.Stats().Batches != 0 {
			t.Errorf("%d acked: %d events are lost, want %d; %d batches wait", acked, lost, want, o.Stats().Batches)
		}
	}
}

// TestForeignFiles: files of others and of a newer form stay.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir := written(t, 10, true)
	names := []string{"notes.txt", "12.memory", "0000000100000000.memory2"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := open(t, options(dir))
	same(t, "left", takeAll(t, o, memory), from(1, 10))
	o.Close()
	for _, name := range names {
		stat(t, filepath.Join(dir, name))
	}
}

// TestStateIsReadLater: a state that cannot be read because of the disk is not taken for a missing or corrupt one.
func TestStateIsReadLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, options(dir))
	fill(t, o, memory, 1, 5, 100)
	for range 3 {
		o.Ack(next(t, o, memory))
	}
	o.Close()
	path := filepath.Join(dir, "state")
	if err := unix.Mount("/proc/self/mem", path, "", unix.MS_BIND, ""); err != nil { // reading it is EIO
		t.Skipf("nothing can be mounted, which takes root: %v", err)
	}
	defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	o = open(t, options(dir))
	if o.syncNow(); o.Stats().Writable || o.Stats().Batches > 0 {
		t.Errorf("it goes on without its state: %+v", o.Stats())
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	o.syncNow()
	if s := o.Stats(); s.Batches != 2 || s.Corrupt != 0 || !s.Writable {
		t.Errorf("then: %+v", s)
	}
	same(t, "left", takeAll(t, o, memory), from(4, 5))
}

// FuzzSegment: whatever a file holds, every batch that comes is one whose checksum is right, none waits for ever, and
// no more bytes come than the file has.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	o := open(f, options(dir))
	for id := range 3 {
		fill(f, o, memory, id+1, id+1, 50*id)
	}
	unclosed, err := os.ReadFile(files(f, dir, "*.memory")[0])
	if err != nil {
		f.Fatal(err)
	}
	o.Close()
	closed, err := os.ReadFile(files(f, dir, "*.memory")[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(unclosed)
	f.Add(closed)
	f.Add(closed[:len(closed)-3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, segment.Name{Kind: memory, Number: 1 << 32}.String())
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		o := open(t, options(dir))
		n := 0
		for b := next(t, o, memory); b != nil; b = next(t, o, memory) {
			if n += segment.HeadBytes + len(b.Data); n > len(data) {
				t.Fatalf("%d bytes of batches in a file of %d", n, len(data))
			}
			o.Ack(b)
		}
		if s := o.Stats(); s.Batches != 0 {
			t.Fatalf("%d batches wait for ever", s.Batches)
		}
		o.Close()
	})
}

// FuzzState: whatever the file holds, Open goes on.
func FuzzState(f *testing.F) {
	dir := f.TempDir()
	o := open(f, options(dir))
	fill(f, o, memory, 1, 3, 50)
	o.opts.Lost.Store(7)
	o.Ack(next(f, o, memory))
	o.syncNow()
	good, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, true)
	f.Add(good[segment.HeadBytes:], true)
	f.Add([]byte("{}"), true)
	f.Add([]byte("{}\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, valid bool) {
		if valid { // a good checksum
			text = segment.Encode(nil, segment.Head{}, text)
		}
		dir := written(t, 20, true)
		if err := os.WriteFile(filepath.Join(dir, "state"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		o := open(t, options(dir))
		takeAll(t, o, memory)
		if s := o.Stats(); s.Batches != 0 {
			t.Fatalf("%d batches wait for ever", s.Batches)
		}
		o.Close()
	})
}
