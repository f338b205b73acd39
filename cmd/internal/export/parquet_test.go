package export

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/gputap/gputap/cmd/internal/event"
)

// TestParquetEqualsNaiveSums reads the columns by their names, without the types that wrote them.
func TestParquetEqualsNaiveSums(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10)
	path, dir, got := f.record(), filepath.Join(t.TempDir(), "events"), newFigures()
	exported(t, "parquet", path, "-o", dir)
	for _, kind := range event.Kinds() {
		data, err := os.ReadFile(filepath.Join(dir, kind+".parquet"))
		check(t, err)
		file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
		check(t, err)
		columns := map[int]string{}
		for _, path := range file.Schema().Columns() {
			leaf, _ := file.Schema().Lookup(path...)
			columns[leaf.ColumnIndex] = path[0]
		}
		for _, column := range []string{"time", "cluster", "host", "pid", "tid", "comm", "user", "job", "symbol",
			"op", "gpu"} {
			if _, has := file.Schema().Lookup(column); !has {
				t.Errorf("%s has no column %s", kind, column)
			}
		}
		for _, group := range file.RowGroups() {
			reader := group.Rows()
			buf := make([]parquet.Row, 64)
			for {
				n, err := reader.ReadRows(buf)
				for _, row := range buf[:n] {
					countRow(t, got, kind, row, columns)
				}
				if err != nil {
					break
				}
			}
			check(t, reader.Close())
		}
		if one := exported(t, "parquet", path, "-o", "-", "--kind", kind); !bytes.Equal(one, data) {
			t.Errorf("--kind %s writes another file than the directory has", kind)
		}
	}
	got.compare(t, f)
}

func countRow(t *testing.T, got figures, kind string, row parquet.Row, columns map[int]string) {
	t.Helper()
	bytes, seconds := uint64(0), 0.
	for _, v := range row {
		switch columns[v.Column()] {
		case "bytes":
			bytes = v.Uint64()
		case "duration_ns":
			seconds = float64(v.Uint64()) / 1e9
		case "time":
			if at := time.Unix(0, v.Int64()); at.Before(time.Unix(0, wallOffset)) {
				t.Fatalf("%s at %s", kind, at)
			}
		case "job":
			if v.String() != "slurm:1" {
				t.Fatalf("%s of job %s", kind, v)
			}
		}
	}
	got.add(kind, bytes, seconds)
}
