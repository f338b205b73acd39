package outbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
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

// segmentAt opens a segment file as Open does.
func segmentAt(t *testing.T, path string) *segment {
	t.Helper()
	kind, number, _ := parseName(filepath.Base(path))
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, _, err := openSegment(root, kind, number)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// recordsOf are the offsets of a segment's batches, and their end.
func recordsOf(t *testing.T, path string) (offsets []int64) {
	t.Helper()
	s := segmentAt(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := s.begin; at.Off < s.end.Off; {
		h, err := readHead(f, at.Off, s.end.Off)
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, at.Off)
		at = at.after(int(h.Bytes), int(h.Events))
	}
	return append(offsets, s.end.Off)
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
			flip(t, first, recordsOf(t, first)[3]+headBytes+7)
		}, without(4, 4), 4},
		{"byte of a batch before a crash", false, func(t *testing.T, _, last string) {
			flip(t, last, recordsOf(t, last)[3]+headBytes+7)
		}, without(49, 49), 49},
		{"byte of a head", true, func(t *testing.T, first, _ string) {
			flip(t, first, recordsOf(t, first)[3]+20)
		}, without(4, perSegment), 39},
		{"byte of the first record", true, func(t *testing.T, first, _ string) {
			flip(t, first, 15)
		}, without(1, perSegment), 45},
		{"byte of the names", true, func(t *testing.T, first, _ string) {
			flip(t, first, headBytes)
		}, without(1, perSegment), 45},
		{"byte of an ending", true, func(t *testing.T, first, _ string) {
			offsets := recordsOf(t, first)
			flip(t, first, offsets[len(offsets)-1]+9)
		}, all, 0},
		{"segment removed", true, func(t *testing.T, first, _ string) {
			if err := os.Remove(first); err != nil {
				t.Fatal(err)
			}
		}, without(1, perSegment), 0},
		{"nothing of a segment", false, func(t *testing.T, _, last string) {
			_, number, _ := parseName(filepath.Base(last))
			path := filepath.Join(filepath.Dir(last), segmentName(memory, number+1))
			if err := os.WriteFile(path, nil, 0o600); err != nil {
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
			flip(t, filepath.Join(filepath.Dir(first), stateName), 30)
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
			if lost := o.opts.Lost.Load(); lost != tt.events || o.Stats().Batches != 0 {
				t.Errorf("%d events are lost, want %d; %d batches wait", lost, tt.events, o.Stats().Batches)
			}
			harmed := !strings.HasPrefix(tt.name, "nothing") && tt.name != "segment removed"
			if harmed != (o.Stats().Corrupt == 1) {
				t.Errorf("corruption is counted %d times", o.Stats().Corrupt)
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
				lost, corrupt := o.opts.Lost.Load(), o.Stats().Corrupt
				if lost != tt.events || corrupt != map[bool]uint64{true: 1}[i == 0] {
					t.Errorf("start %d: %d events are lost, want %d, in %d places", i, lost, tt.events, corrupt)
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
		o.Sync(schema.KindNone)
		o.crash()
		path := files(t, dir, "*.memory")[0]
		cut(t, path, stat(t, path).Size()-100)
		o = open(t, options(dir))
		if lost := o.opts.Lost.Load(); lost != want || o.Stats().Batches != 0 {
			t.Errorf("%d acked: %d events are lost, want %d; %d batches wait", acked, lost, want, o.Stats().Batches)
		}
	}
}

// TestForeignFiles: files of others and segments of a newer form stay.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir := written(t, 10, true)
	list := files(t, dir, "*.memory")
	setForm(t, list[0], segmentForm+1)
	for name, content := range map[string][]byte{"notes.txt": []byte("mine"), "12.memory": []byte("mine")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := &logged{}
	opts := options(dir)
	opts.Log = log.logger()
	o := open(t, opts)
	same(t, "left", takeAll(t, o, memory), from(10, 10))
	o.Close()
	for _, name := range []string{"notes.txt", "12.memory", filepath.Base(list[0])} {
		stat(t, filepath.Join(dir, name))
	}
	if log.count("kept for a newer program") != 1 || o.opts.Lost.Load() != 0 || o.Stats().Corrupt != 0 {
		t.Errorf("%+v, the log has %s", o.Stats(), &log.text)
	}
}

// TestKeptSegments: what could not be read at one start is sent after a later one, also when newer batches were acked
// meanwhile.
func TestKeptSegments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		spoil, mend func(t *testing.T, path string)
	}{
		{
			"newer form", func(t *testing.T, path string) { setForm(t, path, 7) },
			func(t *testing.T, path string) { setForm(t, path, segmentForm) },
		},
		{"unreadable", func(t *testing.T, path string) {
			move(t, path, path+".away")
			if err := os.Symlink(path, path); err != nil { // ELOOP
				t.Fatal(err)
			}
		}, func(t *testing.T, path string) { move(t, path+".away", path) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := written(t, 12, true)
			first := files(t, dir, "*.memory")[0] // 1 to 9
			tt.spoil(t, first)
			for id := 13; id <= 14; id++ { // two starts
				o := open(t, options(dir))
				if id == 13 {
					same(t, "left", takeAll(t, o, memory), from(10, 12))
				}
				fill(t, o, memory, id, id, 1000)
				o.Close()
			}
			tt.mend(t, first)
			o := open(t, options(dir))
			same(t, "then", takeAll(t, o, memory), append(from(1, 9), from(13, 14)...))
			if o.Close(); len(files(t, dir, "*.memory")) > 0 {
				t.Errorf("files are left: %v", files(t, dir, "*.memory"))
			}
		})
	}
}

// setForm changes the form that a segment says to have.
func setForm(t *testing.T, path string, form uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := readHead(f, 0, headBytes)
	if err != nil {
		t.Fatal(err)
	}
	h.Seq = form
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		t.Fatal(err)
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
	path := filepath.Join(dir, stateName)
	if err := unix.Mount("/proc/self/mem", path, "", unix.MS_BIND, ""); err != nil { // reading it is EIO
		t.Skipf("nothing can be mounted, which takes root: %v", err)
	}
	defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	o = open(t, options(dir))
	if o.Sync(schema.KindNone); o.Stats().Writable || o.Stats().Batches > 0 {
		t.Errorf("it goes on without its state: %+v", o.Stats())
	}
	if err := unix.Unmount(path, 0); err != nil {
		t.Fatal(err)
	}
	o.Sync(schema.KindNone)
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
		if err := os.WriteFile(filepath.Join(dir, segmentName(memory, 1)), data, 0o600); err != nil {
			t.Fatal(err)
		}
		o := open(t, options(dir))
		n := 0
		for b := next(t, o, memory); b != nil; b = next(t, o, memory) {
			if n += headBytes + len(b.Data); n > len(data) {
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

// FuzzState: whatever the file holds, it is the state that was written or corrupt, and Open goes on.
func FuzzState(f *testing.F) {
	dir := f.TempDir()
	o := open(f, options(dir))
	fill(f, o, memory, 1, 3, 50)
	o.opts.Lost.Store(7)
	o.Ack(next(f, o, memory))
	o.Sync(schema.KindNone)
	good, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, stateName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		body, sum, _ := bytes.Cut(text, []byte("\n"))
		whole := strings.TrimSuffix(string(sum), "\n") == checksumText(body)
		if _, err := readState(root); err == nil && !whole || err != nil && !errors.Is(err, errCorrupt) {
			t.Errorf("read with %v", err)
		}
		open(t, options(dir)).Close()
	})
}
