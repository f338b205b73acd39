package consumertest

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/gputap/gputap/consumer/snapshot"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// GoldenFile compares got with a file of testdata. The flag -update writes the file first.
func GoldenFile(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, name); !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// testGolden checks that the snapshot in testdata restores to the view in testdata and is saved again byte by byte. A
// snapshot that exists is never rewritten: it stands for states that running programs have saved. To replace it after a
// change of an unreleased form, delete the file and run with -update.
func (s Suite[F]) testGolden(t *testing.T) {
	const file, view = "testdata/snapshot_v1.golden", "testdata/snapshot_v1.txt"
	if _, err := os.Stat(file); *update && os.IsNotExist(err) {
		fold := s.New()
		Take(t, fold, Traffic(t, 4, s.Golden)...)
		var w snapshot.Writer
		for _, section := range Sections(t, fold) {
			w.Section(section)
		}
		if err := os.WriteFile(file, w.Data(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := snapshot.NewReader(read(t, file))
	var saved []snapshot.Section
	for r.Room(1) > 0 {
		saved = append(saved, r.Section())
	}
	if r.Err() != nil || len(saved) == 0 {
		t.Fatalf("%s: %d sections, %v", file, len(saved), r.Err())
	}
	fold := Restore(t, s.New(), saved)
	GoldenFile(t, view, s.View(t, fold))
	same(t, 0, "golden", Sections(t, fold), saved)
}
