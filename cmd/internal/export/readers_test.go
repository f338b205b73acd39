package export

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/schema"
)

// needs skips a test that lacks a program of somebody else, or fails it if a variable of the environment is set.
func needs(t *testing.T, variable, what string) {
	t.Helper()
	if os.Getenv(variable) != "" {
		t.Fatal(variable + " is set and there is no " + what)
	}
	t.Skip("needs " + what)
}

// node runs a script of testdata/readers with the packages in GPUTAP_NODE_READERS.
func node(t *testing.T, script string, args ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/readers", script))
	check(t, err)
	modules := os.Getenv("GPUTAP_NODE_READERS")
	if modules == "" {
		needs(t, "GPUTAP_REQUIRE_NODE", "folder with packages of npm in GPUTAP_NODE_READERS: see docs/development.md")
	}
	return runNode(t, modules, string(text), args...)
}

// runNode runs a module in a folder, from which its imports are resolved.
func runNode(t *testing.T, dir, module string, args ...string) []byte {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		needs(t, "GPUTAP_REQUIRE_NODE", "node")
	}
	cmd := exec.Command(program, append([]string{"--input-type=module", "-"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(module)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	return out
}

// tableSums is what a reader finds in a Parquet file.
type tableSums struct {
	Rows    int
	Columns []string
	Sums    map[string]string         // of numbers, modulo 2^64
	Texts   map[string]map[string]int // how often each text occurs
}

// TestOtherReadersOpenParquet compares what hyparquet and DuckDB read with sums over the batches of the recording.
// DuckDB reads a time that is in UTC as microseconds.
func TestOtherReadersOpenParquet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12)
	dir := filepath.Join(t.TempDir(), "events")
	exported(t, "parquet", f.record(), "-o", dir)
	for name, unit := range map[string]uint64{"hyparquet": 1, "duckdb": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, paths := map[string]tableSums{}, []string{}
			for kind, sums := range f.parquetSums(unit) {
				path := filepath.Join(dir, kind.String()+".parquet")
				want[path], paths = sums, append(paths, path)
			}
			got := map[string]tableSums{}
			check(t, json.Unmarshal(node(t, name+".mjs", paths...), &got))
			for _, path := range paths {
				if !reflect.DeepEqual(got[path], want[path]) {
					t.Errorf("%s:\ngot  %+v\nwant %+v", filepath.Base(path), got[path], want[path])
				}
			}
			if len(paths) != len(event.Kinds()) {
				t.Errorf("the recording has %d kinds", len(paths))
			}
		})
	}
}

// TestPageJoinsFreesWithTheirAllocations runs the query of docs/export.md in DuckDB.
func TestPageJoinsFreesWithTheirAllocations(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/export.md")
	check(t, err)
	_, query, found := strings.Cut(string(page), "```sql\n")
	query, _, ends := strings.Cut(query, "```")
	if !found || !ends {
		t.Fatal("docs/export.md has no query")
	}
	f, dir := newFleet(t, 14), filepath.Join(t.TempDir(), "events")
	exported(t, "parquet", f.record(), "-o", dir)
	want, got := map[string]uint64{}, map[string]uint64{}
	for _, l := range f.lives {
		if l.until > 0 {
			want[l.class] += l.bytes
		}
	}
	query = strings.ReplaceAll(query, "'memory.parquet'", "'"+filepath.Join(dir, "memory.parquet")+"'")
	check(t, json.Unmarshal(node(t, "query.mjs", query), &got))
	if !maps.Equal(got, want) || len(want) != 2 {
		t.Errorf("freed by class: %v, want %v", got, want)
	}
}

// parquetSums adds up the columns of each kind as docs/export.md names them, with times in multiples of unit ns.
func (f *fleet) parquetSums(unit uint64) map[schema.Kind]tableSums {
	f.t.Helper()
	all := map[schema.Kind]tableSums{}
	for _, data := range f.data {
		var b schema.Batch
		check(f.t, schema.NewDecoder().Decode(data, &b))
		to, known := all[b.Kind]
		if !known {
			to = tableSums{Sums: map[string]string{}, Texts: map[string]map[string]int{}}
		}
		for i := range b.Events {
			row := columnsOf(&b, i)
			row[0].of = row[0].of.(uint64) / unit * unit
			if to.Rows++; to.Columns == nil {
				to.Columns = namesOf(row)
			}
			to.add(row)
		}
		all[b.Kind] = to
	}
	return all
}

// cell is a column of a row: a text or a number.
type cell struct {
	name string
	of   any
}

func namesOf(row []cell) (names []string) {
	for _, c := range row {
		names = append(names, c.name)
	}
	return names
}

func (s *tableSums) add(row []cell) {
	for _, c := range row {
		if text, is := c.of.(string); is {
			if s.Texts[c.name] == nil {
				s.Texts[c.name] = map[string]int{}
			}
			s.Texts[c.name][text]++
			continue
		}
		old, _ := strconv.ParseUint(s.Sums[c.name], 10, 64)
		s.Sums[c.name] = strconv.FormatUint(old+c.of.(uint64), 10)
	}
}

// columnsOf returns the columns of event i of a batch.
func columnsOf(b *schema.Batch, i int) []cell {
	thread := b.Threads[b.Thread().At(i)]
	p := b.Processes[thread.Process]
	gpu := ""
	if n := b.GPU().At(i); n > 0 {
		gpu = b.GPUs[n-1].UUID
	}
	row := func(call uint32, columns ...cell) []cell {
		c := b.Calls[call]
		return append([]cell{{"time", b.Time().At(i) + wallOffset}, {"cluster", b.Cluster}, {"host", b.Host},
			{"pid", uint64(p.PID)}, {"tid", uint64(thread.TID)}, {"comm", p.Comm}, {"user", p.User}, {"job", p.Job},
			{"symbol", c.Symbol}, {"op", c.Op.String()}, {"gpu", gpu}}, columns...)
	}
	switch b.Kind {
	case schema.KindMemory:
		e := b.Memory(i)
		class := b.Calls[e.Call].Class.String()
		if b.Calls[e.Call].Symbol == "cuMemFree_v2" {
			class = "" // it also frees managed memory
		}
		return row(e.Call, cell{"class", class}, cell{"result", uint64(e.Result)},
			cell{"duration_ns", e.Duration}, cell{"bytes", e.Bytes}, cell{"address", e.Ptr}, cell{"aux", e.Aux},
			cell{"pool", e.Pool})
	case schema.KindLaunch:
		e := b.Launch(i)
		s := b.Shapes[e.Shape]
		return row(s.Call, cell{"kernel", "gemm(float*)"}, cell{"grid_x", uint64(s.Grid[0])},
			cell{"grid_y", uint64(s.Grid[1])}, cell{"grid_z", uint64(s.Grid[2])}, cell{"block_x", uint64(s.Block[0])},
			cell{"block_y", uint64(s.Block[1])}, cell{"block_z", uint64(s.Block[2])},
			cell{"shared_bytes", uint64(s.SharedBytes)}, cell{"cuda_stream", b.CUDAStreams[e.CUDAStream]})
	case schema.KindCopy:
		e := b.Copy(i)
		return row(e.Call, cell{"direction", "HtoD"}, cell{"result", uint64(e.Result)}, cell{"duration_ns", e.Duration},
			cell{"bytes", e.Bytes}, cell{"destination", e.Dst}, cell{"source", e.Src},
			cell{"cuda_stream", b.CUDAStreams[e.CUDAStream]}, cell{"host_memory", e.HostMem.String()})
	case schema.KindSync:
		e := b.Sync(i)
		return row(e.Call, cell{"result", uint64(e.Result)}, cell{"duration_ns", e.Duration},
			cell{"cuda_stream", b.CUDAStreams[e.CUDAStream]}, cell{"cuda_event", e.CUDAEvent},
			cell{"elapsed_ns", e.Elapsed})
	}
	e := b.Tensor(i)
	return row(e.Call, cell{"bytes", e.Bytes}, cell{"address", e.Ptr}, cell{"allocated_bytes", e.Allocated},
		cell{"reserved_bytes", e.Reserved})
}
