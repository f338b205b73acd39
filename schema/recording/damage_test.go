package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestTruncation cuts a recording at each byte. Readers find every whole block. Append continues as if the recording
// had never been cut.
func TestTruncation(t *testing.T) {
	t.Parallel()
	all := traffic(12)
	whole := write(t, all, 4)
	var ends []int64
	for b, err := range memory(whole).Blocks() {
		check(t, err)
		ends = append(ends, b.Offset+b.Bytes)
	}
	path := filepath.Join(t.TempDir(), "cut")
	for n := range whole {
		cut := whole[:n]
		check(t, os.WriteFile(path, cut, 0o644))
		messages := 4 * max(0, countUpTo(ends, int64(n))-2) // behind the blocks of state and streams
		if n >= len(head) {
			got, damages := read(t, memory(cut), Filter{})
			if !equal(got, all[:messages]) {
				t.Fatalf("cut at %d: %d messages, want %d", n, len(got), messages)
			}
			if between := n > len(head) && !slices.Contains(ends, int64(n)); between != (len(damages) == 1) {
				t.Fatalf("cut at %d: damages %v", n, damages)
			}
		}
		w, found, err := Append(path)
		check(t, err)
		if len(found.Streams) == 0 {
			writeBeginning(t, w)
		}
		last := map[int]uint64{}
		for _, r := range found.Last {
			last[r.Shard] = r.Last
		}
		for i := range all {
			if m := &all[i]; m.Sequence > last[m.Shard] {
				check(t, w.Append(m))
				if (i+1)%4 == 0 {
					check(t, w.Flush())
				}
			}
		}
		check(t, errors.Join(w.Flush(), w.file.Close())) // Close would sync
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, whole) {
			t.Fatalf("cut at %d: the continued recording differs, %v", n, err)
		}
	}
}

func countUpTo(ends []int64, n int64) (count int) {
	for _, end := range ends {
		if end <= n {
			count++
		}
	}
	return count
}

// TestEachChangedByte changes each byte of a recording. Readers report exactly the block around it, and read all
// others.
func TestEachChangedByte(t *testing.T) {
	t.Parallel()
	all := traffic(12)
	whole := write(t, all, 4)
	var blocks []Block
	for b, err := range memory(whole).Blocks() {
		check(t, err)
		blocks = append(blocks, *b)
	}
	path, r := filepath.Join(t.TempDir(), "changed"), &Reader{}
	for i := range whole {
		for _, change := range []byte{1, 0xff} {
			changed := bytes.Clone(whole)
			changed[i] ^= change
			if i < len(head) {
				check(t, os.WriteFile(path, changed, 0o644))
				if _, err := Open(path); err == nil {
					t.Fatalf("byte %d: Open accepts the head", i)
				}
				continue
			}
			n := slices.IndexFunc(blocks, func(b Block) bool { return int64(i) < b.Offset+b.Bytes })
			checkDamage(t, fmt.Sprintf("byte %d ^ %#x", i, change), r.over(changed), all, n, blocks)
		}
	}
}

// checkDamage checks what readers find in a recording whose block n is damaged.
func checkDamage(t *testing.T, name string, r *Reader, all []Message, n int, blocks []Block) {
	t.Helper()
	var damages []*Damage
	whole := 0
	for _, err := range r.Blocks() {
		if d, isDamage := errors.AsType[*Damage](err); isDamage {
			damages = append(damages, d)
		} else {
			whole++
		}
	}
	if whole != len(blocks)-1 || len(damages) != 1 || damages[0].Offset != blocks[n].Offset ||
		damages[0].Bytes != blocks[n].Bytes {
		t.Fatalf("%s: %d whole blocks, damages %v, want block %d", name, whole, damages, n)
	}
	want := all
	if first := 4 * (n - 2); first >= 0 {
		want = slices.Concat(all[:first], all[first+4:])
	}
	if got, _ := read(t, r, Filter{}); !equal(got, want) {
		t.Fatalf("%s: %d messages, want %d", name, len(got), len(want))
	}
}

// TestAppendKeepsDamage appends behind a damaged block in the middle, and replaces a damaged last one.
func TestAppendKeepsDamage(t *testing.T) {
	t.Parallel()
	all := traffic(12)
	whole := write(t, all, 4)
	var blocks []Block
	for b, err := range memory(whole).Blocks() {
		check(t, err)
		blocks = append(blocks, *b)
	}
	path := filepath.Join(t.TempDir(), "damaged")
	for n, want := range map[int]int64{2: int64(len(whole)), 4: blocks[4].Offset} {
		for _, at := range []int64{0, blocks[n].Bytes - 1} {
			data := bytes.Clone(whole)
			data[blocks[n].Offset+at] ^= 1
			check(t, os.WriteFile(path, data, 0o644))
			w, found, err := Append(path)
			check(t, err)
			if w.Bytes() != want || found.Cut != int64(len(whole))-want {
				t.Errorf("block %d: continues at %d after a cut of %d, want at %d", n, w.Bytes(), found.Cut, want)
			}
			check(t, w.Close())
		}
	}
	data := bytes.Clone(whole)
	data[blocks[1].Offset] ^= 1
	check(t, os.WriteFile(path, data, 0o644))
	if _, _, err := Append(path); err == nil {
		t.Error("Append accepts a recording without streams")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
		t.Errorf("Append has changed it: %v", err)
	}
}

// TestGarbageBetweenBlocks reads the blocks on both sides of other bytes.
func TestGarbageBetweenBlocks(t *testing.T) {
	t.Parallel()
	all := traffic(12)
	whole := write(t, all, 4)
	var last int64
	for b, err := range memory(whole).Blocks() {
		check(t, err)
		last = b.Offset
	}
	for _, garbage := range []string{"x", mark, mark + mark + "0123456789", string(make([]byte, searchBytes-2))} {
		data := slices.Concat(whole[:last], []byte(garbage), whole[last:])
		got, damages := read(t, memory(data), Filter{})
		if !equal(got, all) || len(damages) != 1 || damages[0].Offset != last ||
			damages[0].Bytes != int64(len(garbage)) {
			t.Errorf("%d bytes of garbage: %d messages, damages %v", len(garbage), len(got), damages)
		}
	}
}

// TestForgedLengths reads headers whose lengths are the largest that a number can have.
func TestForgedLengths(t *testing.T) {
	t.Parallel()
	for field := range 3 {
		data := write(t, traffic(4), 4)
		binary.LittleEndian.PutUint32(data[len(head)+len(mark)+4*field:], 0xffff_ffff)
		memory := memory(data)
		if got, damages := read(t, memory, Filter{}); len(got) != 4 || len(damages) != 1 {
			t.Errorf("field %d: %d messages, damages %v", field, len(got), damages)
		}
		if most := cap(memory.summary) + cap(memory.stored); most > len(data) {
			t.Errorf("field %d: the reader took %d bytes for a file of %d", field, most, len(data))
		}
	}
}

var update = flag.Bool("update", false, "write the golden file")

// TestGolden holds the form to a file.
func TestGolden(t *testing.T) {
	t.Parallel()
	const path = "testdata/form1.gtrec"
	data := write(t, traffic(6), 3)
	if *update {
		check(t, os.MkdirAll("testdata", 0o755))
		check(t, os.WriteFile(path, data, 0o644))
	}
	r, err := Open(path)
	check(t, err)
	defer r.Close()
	if got, damages := read(t, r, Filter{}); !equal(got, traffic(6)) || damages != nil {
		t.Errorf("%d messages, damages %v", len(got), damages)
	}
	if golden, err := os.ReadFile(path); err != nil || !bytes.Equal(golden, data) {
		t.Errorf("the file differs from a new one, %v; -update writes it", err)
	}
}

// FuzzReader reads any bytes behind a head. It must end, and whole messages must be valid.
func FuzzReader(f *testing.F) {
	whole := write(f, traffic(6), 3)
	f.Add(whole[len(head):])
	f.Add([]byte(mark + mark))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := memory(append([]byte(head), data...))
		for b, err := range r.Blocks() {
			if err == nil && (b.Bytes < int64(headerBytes) || b.Offset+b.Bytes > int64(len(head)+len(data))) {
				t.Errorf("block of %d bytes at %d", b.Bytes, b.Offset)
			}
		}
		for range r.Messages(Filter{}) {
		}
		for range r.State() {
		}
		_, _, _ = r.Streams()
	})
}

// FuzzBlock reads a block whose checksums are right: its summary and contents may be anything.
func FuzzBlock(f *testing.F) {
	whole := write(f, traffic(6), 3)
	r := memory(whole)
	for b, err := range r.walk(func(*Block) bool { return true }) {
		check(f, err)
		f.Add(bytes.Clone(r.summary), bytes.Clone(b.contents))
	}
	f.Fuzz(func(t *testing.T, summary, contents []byte) {
		if len(summary) > maxSummary || len(contents) > maxContents {
			t.Skip()
		}
		stored := newCompressor().EncodeAll(contents, nil)
		r := memory(appendBlock([]byte(head), summary, stored, len(contents)))
		for m, err := range r.Messages(Filter{}) {
			if err == nil && (m.Shard < 0 || len(m.Data) > len(contents)) {
				t.Errorf("%+v", m)
			}
		}
		for s, err := range r.State() {
			if err == nil && len(s.Data) > len(contents) {
				t.Errorf("a section of %d bytes", len(s.Data))
			}
		}
		b, err := decodeSummary(summary)
		if err == nil && b.Type == TypeMessages && !b.Since.IsZero() && !b.Until.IsZero() {
			again, err := decodeSummary(b.encode())
			check(t, err)
			if fmt.Sprint(again) != fmt.Sprint(b) {
				t.Errorf("%v, and encoded again %v", b, again)
			}
		}
	})
}
