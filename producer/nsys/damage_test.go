package nsys_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/producer/nsys"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// database writes an SQLite database and returns its path.
func database(t testing.TB, statements string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sqlite")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
	return path
}

// file writes a file and returns its path.
func file(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sqlite")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pipe makes a named pipe without a writer and returns its path.
func pipe(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sqlite")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const memoryEvents = "CUDA_GPU_MEMORY_USAGE_EVENTS"

// TestUnusableFiles expects one clear line that names the file and the remedy, or what is wrong if there is none.
func TestUnusableFiles(t *testing.T) {
	t.Parallel()
	whole := read(t, generate(t, releases[1], plan{seed: 1, events: 500, live: 50}).path)
	beside := func(suffix string) string {
		path := file(t, whole)
		if err := os.WriteFile(path+suffix, []byte("pages"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	damaged := append([]byte{}, whole...)
	for i := 4096; i < len(damaged); i++ {
		damaged[i] = 0xa5
	}
	noKernels := strings.NewReplacer("CUPTI_ACTIVITY_KIND_KERNEL", "K", "CUDA_GPU_MEMORY_USAGE_EVENTS", "M",
		"CUPTI_ACTIVITY_KIND_MEM", "C").Replace(strings.Join(releases[1].tables, "\n"))
	const export = "nsys export --type sqlite REPORT.nsys-rep"
	for _, tt := range []struct {
		name, path string
		kinds      []schema.Kind
		want       string
		remedy     string
	}{
		{"absent", "/nonexistent/x.sqlite", nil, "no such file", ""},
		{"a directory", t.TempDir(), nil, "it is a directory", "name a file in it"},
		{"a named pipe", pipe(t), nil, "it is not a regular file", "write it into a file"},
		{"empty", file(t, nil), nil, "the file is empty", export},
		{"text", file(t, []byte("a report that is no database\n")), nil, "not an SQLite database", export},
		{"a cut header", file(t, whole[:50]), nil, "ends in its header", export},
		{"half", file(t, whole[:len(whole)/2]), nil, "the file ends after", export},
		{"damaged pages", file(t, damaged), nil, "damaged", export},
		{"beside a WAL", beside("-wal"), nil, "x.sqlite-wal has changes", export},
		{"beside a journal", beside("-journal"), nil, "x.sqlite-journal has changes", export},
		{"of another program", database(t, "CREATE TABLE urls (value TEXT)"), nil, "no table StringIds", export},
		{"a database without tables", database(t, "PRAGMA user_version = 1"), nil, "no table StringIds", export},
		{"no events", database(t, noKernels), nil, "no table of CUDA events", "--cuda-memory-usage=true"},
		{
			"no memory events", database(t, noKernels), []schema.Kind{schema.KindMemory},
			"no table CUDA_GPU_MEMORY_USAGE_EVENTS", "--cuda-memory-usage=true",
		},
		{
			"no column", database(t, noKernels+"CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER)"), nil,
			"table CUDA_GPU_MEMORY_USAGE_EVENTS: it has no column globalPid", "newer version of nsys",
		},
		{
			"a view of events", database(t, strings.ReplaceAll(strings.Join(releases[1].tables, "\n"), memoryEvents,
				"M")+"CREATE VIEW "+memoryEvents+" AS SELECT * FROM M"), nil, memoryEvents + " is a view", export,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := convert(t, tt.path, nsys.Options{Kinds: tt.kinds})
			if err == nil {
				t.Fatal("converted")
			}
			line := err.Error()
			if strings.Contains(line, "\n") || !strings.Contains(line, tt.path) || !strings.Contains(line, tt.want) ||
				!strings.Contains(line, tt.remedy) {
				t.Errorf("error %q, want the path, %q and %q in one line", line, tt.want, tt.remedy)
			}
		})
	}
}

// TestIs tells databases from other files.
func TestIs(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		database(t, "CREATE TABLE a (b)"): true, file(t, []byte("SQLite format")): false, t.TempDir(): false,
		"/nonexistent": false,
	} {
		if got := nsys.Is(path); got != want {
			t.Errorf("Is(%s) = %t", path, got)
		}
	}
}

// TestDamagedPages overwrites bytes anywhere behind the header. Convert returns an error or what it could read.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	whole := read(t, generate(t, releases[2], plan{seed: 2, events: 300, live: 30}).path)
	refused := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		data := append([]byte{}, whole...)
		for range 1 + rng.IntN(40) {
			data[100+rng.IntN(len(data)-100)] = byte(rng.Uint32())
		}
		path := file(t, data)
		out, _, err := convert(t, path, nsys.Options{})
		if err != nil {
			refused++
			if line := err.Error(); strings.Contains(line, "\n") || !strings.Contains(line, path) {
				t.Errorf("error %q", line)
			}
			continue
		}
		folded(t, out)
	}
	if refused == 0 || refused == 60 {
		t.Errorf("%d of 60 damaged files refused", refused)
	}
}

// TestCanceledConversion ends with the cause.
func TestCanceledConversion(t *testing.T) {
	t.Parallel()
	x := generate(t, releases[1], plan{seed: 1, events: 100, live: 10})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := nsys.Convert(ctx, x.path, nil, nsys.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestHostileValues fills every column of every table with values of every type. Nothing panics, and the Summary and
// the recording agree.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	for _, r := range releases {
		for seed := range uint64(6) {
			hostile(t, r, rand.New(rand.NewPCG(seed, 4)))
		}
	}
}

func hostile(t *testing.T, r release, rng *rand.Rand) {
	ddl := strings.NewReplacer(" NOT NULL", "", "INTEGER", "", "TEXT", "", "PRIMARY KEY (id, stackDepth)", "pk",
		"PRIMARY KEY", "").Replace(strings.Join(r.tables, "\n"))
	path := database(t, ddl)
	db, err := sql.Open("sqlite", path+"?_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, statement := range strings.Split(ddl, ";") {
		_, statement, found := strings.Cut(statement, "CREATE TABLE ")
		if !found {
			continue
		}
		table, list, _ := strings.Cut(statement, " (")
		values := make([]any, strings.Count(list, ",")+1)
		for range 300 {
			for i := range values {
				values[i] = hostileValue(rng)
			}
			insert := "INSERT INTO " + table + " VALUES (?" + strings.Repeat(", ?", len(values)-1) + ")"
			if _, err := tx.Exec(insert, values...); err != nil {
				t.Fatal(table, err)
			}
		}
	}
	if r.enums { // else no row has an operation
		const words = `INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0, '', 'Allocation'), (1, '', 'Deallocation')`
		if _, err := tx.Exec(words); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	out, s, err := convert(t, path, nsys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, events := s.Malformed+s.ImpossibleSize, [schema.NumKinds]uint64{}
	for _, n := range s.Events {
		rows += n
	}
	if s.Events[schema.KindMemory]*s.Events[schema.KindLaunch]*s.Events[schema.KindCopy] == 0 {
		t.Errorf("no events of a kind: %v", s.Events)
	}
	if rows != 4*300 {
		t.Errorf("events %v, %d malformed rows and %d of impossible size, want %d", s.Events, s.Malformed,
			s.ImpossibleSize, 4*300)
	}
	fold := folded(t, out)
	messages(t, out, func(_ *recording.Message, b *schema.Batch) { events[b.Kind] += uint64(b.Events) })
	if events != s.Events {
		t.Errorf("the recording has %v, the Summary %v", events, s.Events)
	}
	if c := fold.Report().Counters; c.UnmatchedFrees+c.LateFrees != s.UnmatchedFrees ||
		c.ReallocOverLive != s.Reallocations {
		t.Errorf("the fold counts %+v, the Summary %+v", c, s)
	}
}

// hostileValue is a value of any type; small numbers, which find rows of other tables, are the most frequent.
func hostileValue(rng *rand.Rand) any {
	switch n := rng.IntN(20); n {
	case 0:
		return nil
	case 1:
		return "text"
	case 2:
		return []byte{0xff, 0, '\n'}
	case 3:
		return 1.5
	case 4:
		return int64(math.MinInt64)
	case 5:
		return int64(math.MaxInt64)
	case 6:
		return -rng.Int64()
	case 7:
		return rng.Int64()
	case 8:
		return strings.Repeat("é", 5000)
	case 9:
		return rng.Int64N(1<<60) + 1
	default:
		return rng.Int64N(4)
	}
}
