package simulate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// written writes a log of these batches and returns its path.
func written(t testing.TB, batches ...batch) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	w, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range batches {
		if err := w.write(&schema.Header{Cluster: "c", Host: "sim-1"}, schema.KindMemory, &batches[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLogKeepsEntries(t *testing.T) {
	t.Parallel()
	path := written(t,
		batch{data: []byte("one")}, batch{data: []byte("two"), withheld: true})
	got := logged(t, path)
	if len(got) != 2 || got[0].Withheld || string(got[0].Data) != "one" || !got[1].Withheld ||
		string(got[1].Data) != "two" {
		t.Errorf("%+v", got)
	}
	if _, err := createLog(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("an existing log was overwritten: %v", err)
	}
	for range ReadLog(path) {
		break // a reader may stop
	}
}

// TestTruncatedLogEndsWithLastWholeEntry truncates a log at every byte.
func TestTruncatedLogEndsWithLastWholeEntry(t *testing.T) {
	t.Parallel()
	path := written(t, batch{data: []byte("one")}, batch{data: []byte("two")})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entry := (len(whole) - len(logMagic)) / 2
	for n := range whole {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := logged(t, path), max(n-len(logMagic), 0)/entry; len(got) != want {
			t.Errorf("%d bytes have %d entries, want %d", n, len(got), want)
		}
	}
}

func TestInvalidLogsAreRejected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, data := range map[string]string{
		"other":   "something else that is long enough",
		"length":  logMagic + "\xff\xff\xff\xff1234567890",
		"short":   logMagic + "\x01\x00\x00\x001",
		"names":   logMagic + "\x08\x00\x00\x00\x01\x00\xff\xff\xff\xffab",
		"flag":    logMagic + "\x06\x00\x00\x00\x01\x02\x00\x00\x00\x00",
		"absence": "",
	} {
		path := filepath.Join(dir, name)
		if name != "absence" {
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n, failed := 0, false
		for _, err := range ReadLog(path) {
			n++
			failed = failed || err != nil && strings.Contains(err.Error(), path)
		}
		if n != 1 || !failed {
			t.Errorf("%s: %d entries, and no error that names the file", name, n)
		}
	}
}

func FuzzLog(f *testing.F) {
	path := written(f, batch{data: []byte("one")}, batch{data: []byte("two")})
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for e, err := range ReadLog(path) {
			if err != nil {
				break
			}
			sum += len(e.Data)
		}
		if sum > len(data) {
			t.Errorf("%d bytes of %d", sum, len(data))
		}
	})
}

// FuzzRecording reads and replays any profile.
func FuzzRecording(f *testing.F) {
	for _, kind := range []string{"memory", "launch", "copy", "sync", "host"} {
		f.Add(pack(f, kind))
	}
	f.Add(pytorch[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := readRecording(bytes.NewReader(data))
		if err != nil {
			return
		}
		l, err := newLife(r, 1000, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		fleet := &fleet{life: l, Options: Options{Cluster: "sim", Start: past, Hosts: 1}}
		h, decoder := fleet.host(0), schema.NewDecoder()
		var b schema.Batch
		for range len(l.steps) + 1 {
			if err := decoder.Decode(h.make().data, &b); err != nil {
				t.Fatal(err)
			}
		}
	})
}
