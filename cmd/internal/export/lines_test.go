package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/schema/recording"
)

// figures are counts and sums of events by kind.
type figures struct {
	counts map[string]int
	bytes  map[string]uint64
	took   map[string]uint64
}

func newFigures() figures {
	return figures{map[string]int{}, map[string]uint64{}, map[string]uint64{}}
}

func (f figures) add(kind string, bytes uint64, seconds float64) {
	f.counts[kind]++
	f.bytes[kind] += bytes
	f.took[kind] += uint64(math.Round(seconds * 1e9))
}

func (f figures) compare(t *testing.T, want *fleet) {
	t.Helper()
	for _, kind := range event.Kinds() {
		if f.counts[kind] != want.counts[kind] || f.bytes[kind] != want.bytes[kind] || f.took[kind] != want.took[kind] {
			t.Errorf("%s: %d events, %d bytes, %d ns; want %d, %d, %d", kind, f.counts[kind], f.bytes[kind],
				f.took[kind], want.counts[kind], want.bytes[kind], want.took[kind])
		}
	}
}

const nanoseconds = "2006-01-02T15:04:05.000000000Z"

func TestJSONLinesHaveEveryEventOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	path, got := f.record(), newFigures()
	for line := range bytes.Lines(exported(t, "jsonl", path, "-o", "-")) {
		var e event.Event
		check(t, json.Unmarshal(line, &e))
		if !bytes.Contains(line, []byte(`"time":"`+e.Time.Format(nanoseconds)+`"`)) {
			t.Fatalf("the time has not nine digits: %s", line)
		}
		got.add(e.Kind, e.Bytes, e.Seconds)
	}
	got.compare(t, f)
	out := exported(t, "jsonl", path, "-o", "-", "--kind", "launch", "--host", "gpu-2", "--comm", "serve")
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 100 || len(lines) > 500 {
		t.Errorf("%d launches of serve on gpu-2", len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(line, `"host":"gpu-2"`) || !strings.Contains(line, `"comm":"serve"`) ||
			!strings.Contains(line, `"kernel":"gemm(float*)"`) {
			t.Fatal(line)
		}
	}
}

func TestCSVHasAFileForEachKind(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	path, dir, got := f.record(), filepath.Join(t.TempDir(), "events"), newFigures()
	exported(t, "csv", path, "-o", dir)
	for _, kind := range event.Kinds() {
		data, err := os.ReadFile(filepath.Join(dir, kind+".csv"))
		check(t, err)
		rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
		check(t, err)
		cell := func(row []string, name string) string {
			if i := slices.Index(rows[0], name); i >= 0 {
				return row[i]
			}
			return "0"
		}
		for _, row := range rows[1:] {
			n, err := strconv.ParseUint(cell(row, "bytes"), 10, 64)
			check(t, err)
			seconds, err := strconv.ParseFloat(cell(row, "seconds"), 64)
			check(t, err)
			got.add(kind, n, seconds)
		}
		if one := exported(t, "csv", path, "-o", "-", "--kind", kind); !bytes.Equal(one, data) {
			t.Errorf("--kind %s writes another file than the directory has", kind)
		}
	}
	got.compare(t, f)
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); left != nil {
		t.Errorf("%v stay", left)
	}
}

// TestBlocksInAnotherOrder exports recordings whose blocks of messages were swapped or repeated.
func TestBlocksInAnotherOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6)
	path := f.record()
	data, err := os.ReadFile(path)
	check(t, err)
	in, err := recording.Open(path)
	check(t, err)
	defer in.Close()
	var blocks [][]byte // of messages
	begin := int64(0)
	for b, err := range in.Summaries() {
		check(t, err)
		if b.Type == recording.TypeMessages {
			blocks = append(blocks, data[b.Offset:b.Offset+b.Bytes])
			begin = max(begin, int64(len(data))-b.Offset)
		}
	}
	head := data[:int64(len(data))-begin]
	last := len(blocks) - 1
	for name, tt := range map[string]struct {
		blocks [][]byte
		want   string // "": status 0
	}{
		"the halves swapped": {slices.Concat(blocks[last/2:], blocks[:last/2]), "behind later ones"},
		"two swapped":        {slices.Concat(blocks[1:2], blocks[:1], blocks[2:]), "behind later ones"},
		"one repeated":       {slices.Concat(blocks[:1], blocks), ""},
		"all repeated":       {slices.Concat(blocks, blocks), ""},
	} {
		check(t, os.WriteFile(path, slices.Concat(head, slices.Concat(tt.blocks...)), 0o600))
		out, err := typed(t, "jsonl", path, "-o", "-")
		if status := app.ExitCode(err); status == 0 && tt.want != "" || status != 0 && tt.want == "" ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: status %d, %v", name, status, err)
		}
		got := newFigures()
		for line := range bytes.Lines(out) {
			var e event.Event
			check(t, json.Unmarshal(line, &e))
			got.add(e.Kind, e.Bytes, e.Seconds)
		}
		got.compare(t, f)
	}
}

func TestExportFails(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	path := f.record()
	f.data, f.kinds = slices.Delete(f.data, 5, 6), slices.Delete(f.kinds, 5, 6)
	gap := f.record()
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign")
	check(t, os.WriteFile(foreign, []byte("something else"), 0o600))
	part, table := filepath.Join(dir, ".x.gtr.part"), filepath.Join(dir, "sync.parquet")
	check(t, errors.Join(os.Link(path, part), os.Link(path, table), os.Symlink(path, filepath.Join(dir, "link.gtr"))))
	whole, err := os.ReadFile(path)
	check(t, err)
	for args, want := range map[string]struct {
		status int
		err    string
	}{
		"jsonl " + gap + " -o -":                            {4, "1 batch is missing"},
		"jsonl " + foreign + " -o -":                        {1, "not a recording"},
		"jsonl " + path + " -o - --kind copy --comm typo":   {4, "no process is selected by --comm typo"},
		"pprof " + path + " -o - --pid 99999":               {4, "no process is selected by --pid 99999"},
		"jsonl " + path:                                     {2, "--output: name a file"},
		"memory-viz " + path + " --pid 99 -o " + dir + "/x": {1, "none is in the range"},
		"jsonl " + path + " -o " + dir:                      {2, "is a directory"},
		"jsonl " + path + " -o " + dir + "/no/file":         {1, "file: the directory " + dir + "/no does not exist"},
		"jsonl " + path + " -o " + path:                     {2, "this is the file to read"},
		"pprof " + path + " -o " + dir + "/link.gtr":        {2, "this is the file to read"},
		"csv " + part + " --kind copy -o " + dir + "/x.gtr": {2, "this is the file to read"},
		"parquet " + dir + "/sync.parquet -o " + dir:        {2, "this is the file to read"},
		"jsonl " + path + " -o - --kind host":               {2, "--kind"},
		"csv " + path + " -o -":                             {2, "name a directory"},
		"csv " + path + " -o " + foreign:                    {2, "--output " + foreign + ": csv writes a file"},
		"parquet " + path + " -o " + foreign:                {2, "name a directory"},
		"parquet " + path + " -o " + foreign + "/x":         {1, "--output " + foreign + "/x: create the directory"},
		"csv " + path + " -o - --kind sync --host [":        {2, "--host"},
		"csv " + path + " -o - --kind sync --since x":       {2, "--since"},
		"csv " + path + " -o - --kind sync --comm serve":    {0, ""},
	} {
		_, err := typed(t, strings.Fields(args)...)
		if got := app.ExitCode(err); got != want.status || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: status %d, %v; want %d, %s", args, got, err, want.status, want.err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); !slices.Equal(left, []string{part}) {
		t.Errorf("%v stay", left)
	}
	for _, file := range []string{path, part, table} {
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, whole) {
			t.Errorf("%s has changed: %v", file, err)
		}
	}
}
