package schema_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// good is a small launch batch whose parts the rows of TestHostile replace.
func good(replace ...any) []byte {
	o := object{
		"v", 1, "k", "launch", "h", "gpu01", "n", 2,
		"procs", []any{
			[]any{1, 1, 0, "a", "", "", 0},
		}, "threads", []any{[]any{0, 1, ""}}, "gpus", []any{[]any{"GPU-0", 0}},
		"calls", []any{[]any{"cuLaunchKernel", "launch", "", ""}}, "funcs", []any{[]any{"k", 1}},
		"shapes", []any{[]any{0, 0, 1, 1, 1, 1, 1, 1, 0}}, "streams", []any{0},
	}
	cols := object{
		"t", col(5, 1, 0, 1), "th", col(0, 0), "g", col(0, 1, 0, 1), "s", col(0, 0), "q", col(0, 0), "c", col(0, 0),
		"cx", col(0, 0), "st", col(0, 0),
	}
	for i := 0; i < len(replace); i += 2 {
		if !o.set(replace[i], replace[i+1]) && !cols.set(replace[i], replace[i+1]) {
			o = append(o, replace[i], replace[i+1])
		}
	}
	return pack(append(o, "cols", cols))
}

// memory is good as a memory batch.
func memory(replace ...any) []byte {
	return good(append(
		[]any{"k", "memory", "ctxs", []any{[]any{5, 1}}, "cx", col(0, 1, 0, 1), "c", col(0, 0)}, replace...,
	)...)
}

func (o object) set(key, value any) bool {
	for i := 0; i < len(o); i += 2 {
		if o[i] == key {
			o[i+1] = value
			return true
		}
	}
	return false
}

func col(base any, width int, data ...byte) []any {
	return []any{base, width, append([]byte{}, data...)}
}

func TestHostile(t *testing.T) {
	tests := []struct {
		name string
		data []byte
	}{
		{"empty", nil},
		{"no map", pack([]any{1})},
		{"nil envelope", []byte{0xc0}},
		{"5 bytes claim 20 M entries", []byte{0xdf, 0x01, 0x31, 0x2d, 0x00}},
		{"5 more claim 20 M rows", append([]byte("\x81\xa5procs"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"5 more claim 20 M numbers", append([]byte("\x81\xa7streams"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"5 more claim 20 M columns", append([]byte("\x81\xa4cols"), 0xdf, 0x01, 0x31, 0x2d, 0x00)},
		{"5 more claim 20 M losses", append([]byte("\x81\xa4lost"), 0xdf, 0x01, 0x31, 0x2d, 0x00)},
		{"5 more claim 20 M unknown values", append([]byte("\x81\xa1?"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"a row claims 20 M fields", append([]byte("\x81\xa5procs\x91"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{
			"a list of failed symbols claims 20 M",
			append([]byte("\x81\xa4libs\x91\x96\xa0\x00\x00\x00\x90"), 0xdd, 0x01, 0x31, 0x2d, 0x00),
		},
		{
			"a list of coverage claims 20 M",
			append([]byte("\x81\xa5cover\x91\x94\x00\x00"), 0xdd, 0x01, 0x31, 0x2d, 0x00),
		},
		{"nodes claim 20 M", append([]byte("\x81\xa6graphs\x91\x93\x00\x00"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"nodes claim 4 G", append([]byte("\x81\xa6graphs\x91\x93\x00\x00"), 0xdd, 0xff, 0xff, 0xff, 0xfe)},
		{"5 more claim 20 M graphs", append([]byte("\x81\xa6graphs"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"5 more claim 20 M contexts", append([]byte("\x81\xa4ctxs"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"5 more claim 20 M coverages", append([]byte("\x81\xa5cover"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"a list above the cap", pack(object{"libs", []any{[]any{"", 0, 0, 0, make([]any, 1<<17+1)}}})},
		{
			"lists above the cap together",
			pack(object{"graphs", []any{[]any{0, 0, []any{0, 1}}, []any{0, 0, make([]any, 1<<17)}}}),
		},
		{
			"a list in a row claims 20 M",
			append([]byte("\x81\xa4libs\x91\x95\xa0\x00\x00\x00"), 0xdd, 0x01, 0x31, 0x2d, 0x00),
		},
		{"a string claims 2 GiB", append([]byte("\x81\xa1h"), 0xdb, 0x7f, 0xff, 0xff, 0xff)},
		{"an extension claims 4 GiB", append([]byte("\x81\xa1?"), 0xc9, 0xff, 0xff, 0xff, 0xff, 1)},
		{"a reserved code", []byte("\x81\xa1?\xc1")},
		{"bytes after the envelope", append(good(), 0)},
		{"width 3", good("t", col(5, 3, 0, 0, 0, 1, 0, 0))},
		{"width 256", good("t", []any{5, 256, []byte{0, 1}})},
		{"short column", good("t", col(5, 1, 0))},
		{"long column", good("t", col(5, 1, 0, 1, 2))},
		{"data under width 0", good("t", col(5, 0, 0))},
		{"column of two fields", good("t", []any{5, 0})},
		{"negative base", good("t", []any{-1, 0, []byte{}})},
		{"fractional base", good("t", []any{1.5, 0, []byte{}})},
		{"clock offset above 63 bits", good("off", uint64(1<<63))},
		{"thread beyond its dictionary", good("th", col(1, 0))},
		{"GPU beyond its dictionary", good("g", col(0, 1, 0, 2))},
		{"shape beyond its dictionary", good("s", col(0, 1, 0, 1))},
		{"CUDA stream beyond its dictionary", good("q", col(0, 2, 0, 0, 0, 1))},
		{"no dictionary at all", good("threads", []any{})},
		{"wrapping base", good("th", col(uint64(math.MaxUint64), 1, 0, 1))},
		{
			"wrapping base, width 8",
			good("s", col(1, 8, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0)),
		},
		{"thread of no process", good("threads", []any{[]any{1, 1, ""}})},
		{"shape of no call", good("shapes", []any{[]any{1, 0}})},
		{"shape of no function", good("shapes", []any{[]any{0, 1}})},
		{"a node without a count", good("graphs", []any{[]any{0, 0, []any{0}}})},
		{"half a node after a whole one", good("graphs", []any{[]any{0, 0, []any{0, 1, 0}}})},
		{"a node of no function", good("graphs", []any{[]any{0, 0, []any{0, 1, 1, 1}}})},
		{"a node of 33 bits", good("graphs", []any{[]any{0, 0, []any{1 << 32, 1}}})},
		{"a node run a negative number of times", good("graphs", []any{[]any{0, 0, []any{0, -1}}})},
		{"nodes as text", good("graphs", []any{[]any{0, 0, "ab"}})},
		{"nodes as a map", good("graphs", []any{[]any{0, 0, object{0, 1}}})},
		{"a graph of no function", good("graphs", []any{[]any{1}})},
		{"a graph without functions", good("funcs", []any{}, "shapes", []any{}, "graphs", []any{[]any{}})},
		{"partial above 255", good("graphs", []any{[]any{0, 256}})},
		{"a context on no GPU", good("ctxs", []any{[]any{1, 2}})},
		{"a context on a GPU of 33 bits", good("ctxs", []any{[]any{1, 1 << 32}})},
		{"coverage of no process", good("cover", []any{[]any{1}})},
		{"a number among symbols", good("libs", []any{[]any{"", 0, 0, 0, []any{1}}})},
		{"context beyond its dictionary", memory("cx", col(0, 1, 0, 2))},
		{"context without a dictionary", memory("ctxs", []any{})},
		{"wrapping context", memory("cx", col(uint64(math.MaxUint64), 1, 0, 2))},
		{"stack beyond its dictionary", memory("st", col(0, 1, 0, 2), "stacks", []any{[]any{}})},
		{"stack without a dictionary", memory("st", col(0, 1, 0, 1))},
		{"wrapping stack", memory("st", col(uint64(math.MaxUint64), 1, 0, 2), "stacks", []any{[]any{}})},
		{"5 more claim 20 M stacks", append([]byte("\x81\xa6stacks"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"frames claim 20 M", append([]byte("\x81\xa6stacks\x91\x92"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
		{"frames above the cap", memory("stacks", []any{[]any{make([]any, 1<<17+1)}})},
		{"a number among frames", memory("stacks", []any{[]any{[]any{1}}})},
		{"thread index of 33 bits", good("threads", []any{[]any{1 << 32, 1, ""}})},
		{"negative pid", good("procs", []any{[]any{-1}})},
		{"pid as text", good("procs", []any{[]any{"1"}})},
		{"huge string", good("h", strings.Repeat("x", 4097))},
		{"huge key", pack(object{strings.Repeat("x", 4097), 1})},
		{"events above the cap", good("n", schema.MaxEvents+1)},
		{"negative events", good("n", -1)},
		{
			"200 k nested arrays under an unknown key",
			append([]byte("\x81\xa1?"), bytes.Repeat([]byte{0x91}, 200_000)...),
		},
		{
			"200 k nested maps in a row",
			append([]byte("\x81\xa5funcs\x91\x93\xa0\x00"), bytes.Repeat([]byte{0x81}, 200_000)...),
		},
		{"a message above the cap", make([]byte, schema.MaxMessageBytes+1)},
	}
	for _, untouched := range [][]byte{good(), memory()} {
		var b schema.Batch
		if err := schema.NewDecoder().Decode(untouched, &b); err != nil {
			t.Fatalf("the untouched message: %v", err)
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b schema.Batch
			var err error
			if n := allocated(func() { err = schema.NewDecoder().Decode(tt.data, &b) }); n > 1<<20 {
				t.Errorf("allocated %d bytes", n)
			}
			if !errors.Is(err, schema.ErrMalformed) {
				t.Errorf("error %v, want ErrMalformed", err)
			}
		})
	}
}

// TestTruncated cuts every golden message at every byte.
func TestTruncated(t *testing.T) {
	d := schema.NewDecoder()
	var b schema.Batch
	for _, m := range released(t) {
		for n := range m.data {
			if err := d.Decode(m.data[:n:n], &b); !errors.Is(err, schema.ErrMalformed) {
				t.Fatalf("%s cut to %d bytes: error %v, want ErrMalformed", m.path, n, err)
			}
		}
	}
}

// TestRepeatedKeys: the last of equal keys holds, as a map reads in any language, and dictionaries
// do not pile up.
func TestRepeatedKeys(t *testing.T) {
	procs := make([]any, 1000)
	for i := range procs {
		procs[i] = []any{i}
	}
	o := object{"lost", object{"spool", 1}, "streams", []any{1, 2, 3}}
	for range 100 {
		o = append(o, "procs", procs, "lost", object{"spool", 2}, "streams", []any{4})
	}
	data := pack(o)
	var b schema.Batch
	if err := schema.NewDecoder().Decode(data, &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Processes) != 1000 || b.Processes[999].PID != 999 {
		t.Errorf("%d processes, want 1000", len(b.Processes))
	}
	if b.Lost[schema.LossSpool] != 2 || len(b.CUDAStreams) != 1 || b.CUDAStreams[0] != 4 {
		t.Errorf("lost %d, streams %v, want 2, [4]", b.Lost[schema.LossSpool], b.CUDAStreams)
	}
}

// TestRepeatedColumns: the last of equal columns holds, in whatever order columns come.
func TestRepeatedColumns(t *testing.T) {
	data := pack(object{
		"cols",
		object{
			"v", col(7, 0), "t", col(1, 0), "t", col(2, 0), "d", col(3, 0), "new", 9, "th", col(4, 0), "t", col(5, 0),
			"t", col(6, 0),
		},
	})
	var b schema.Batch
	if err := schema.NewDecoder().Decode(data, &b); err != nil {
		t.Fatal(err)
	}
	if b.Time().Base != 6 || b.Duration().Base != 3 || b.Thread().Base != 4 {
		t.Errorf("columns %d, %d, %d, want 6, 3, 4", b.Time().Base, b.Duration().Base, b.Thread().Base)
	}
}

// TestOneByte: strings, lists and numbers that one byte says, and those next to them.
func TestOneByte(t *testing.T) {
	long := strings.Repeat("x", 32)
	for _, tt := range []struct{ name, key, value, want string }{
		{"nil for a string", "h", "\xc0", ""},
		{"an empty string", "h", "\xa0", ""},
		{"the longest string", "h", "\xbf" + long[:31], long[:31]},
		{"a longer string", "h", "\xd9\x20" + long, long},
		{"binary for a string", "h", "\xc4\x01x", "x"},
		{"a list for a string", "h", "\x9f" + long[:15], "refused"},
		{"nil for a list", "streams", "\xc0", "[]"},
		{"an empty list", "streams", "\x90", "[]"},
		{"the longest list", "streams", "\x9f" + strings.Repeat("\x07", 15), "[7 7 7 7 7 7 7 7 7 7 7 7 7 7 7]"},
		{"a longer list", "streams", "\xdc\x00\x10" + strings.Repeat("\x07", 16), "[7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7]"},
		{"a map for a list", "streams", "\x80", "refused"},
		{"a string for a list", "streams", "\xa0", "refused"},
		{"nil for a number", "run", "\xc0", "0"},
		{"the largest number", "run", "\x7f", "127"},
		{"a larger number", "run", "\xcc\x80", "128"},
		{"a map for a number", "run", "\x80", "refused"},
		{"a negative number", "run", "\xff", "refused"},
		{"no value", "run", "", "refused"},
	} {
		var b schema.Batch
		got := "refused"
		if err := schema.NewDecoder().Decode(
			[]byte("\x81"+string([]byte{0xa0 + byte(len(tt.key))})+tt.key+tt.value), &b,
		); err == nil {
			got = map[string]string{"h": b.Host, "streams": fmt.Sprint(b.CUDAStreams), "run": fmt.Sprint(b.Run)}[tt.key]
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestRepeatedGraphs: nodes of an earlier dictionary do not shine through either, nor pile up.
func TestRepeatedGraphs(t *testing.T) {
	graphs := []any{[]any{0, 0, []any{0, 1, 0, 2, 0, 3}}, []any{0, 1, []any{0, 4}}}
	data := pack(object{
		"funcs", []any{[]any{"k"}}, "graphs", graphs, "graphs",
		[]any{[]any{0, 0, []any{0, 9}}, []any{0}, []any{0, 0, []any{0, 8}}},
	})
	var b schema.Batch
	if err := schema.NewDecoder().Decode(data, &b); err != nil {
		t.Fatal(err)
	}
	if got := rowsText(&b); !strings.HasSuffix(
		got, "graph k,0,0 partial=0 k,0,0*9\ngraph k,0,0 partial=0\ngraph k,0,0 partial=0 k,0,0*8\n",
	) {
		t.Errorf("graphs\n%s", got)
	}
}

// TestReusedBatch: nothing of one message shines through in the next.
func TestReusedBatch(t *testing.T) {
	d := schema.NewDecoder()
	var b schema.Batch
	for range 2 {
		for _, m := range released(t) {
			var fresh schema.Batch
			if err := d.Decode(m.data, &b); err != nil {
				t.Fatal(err)
			}
			if err := schema.NewDecoder().Decode(m.data, &fresh); err != nil {
				t.Fatal(err)
			}
			if got, want := rowsText(&b), rowsText(&fresh); got != want {
				t.Errorf("%s into a used batch\n%s\nwant\n%s", m.path, got, want)
			}
		}
	}
}

// TestReusedBatchKeepsNoStrings: rows beyond the length of a dictionary, in the memory that the next
// message will use, hold nothing of an earlier one.
func TestReusedBatchKeepsNoStrings(t *testing.T) {
	full := object{
		"procs", []any{[]any{0, 0, 0, "s", "s", "s", 0, "s", 0, "s", "s", "s"}, []any{}, []any{1, 1, 1, "s"}},
		"threads", []any{[]any{0, 0, "s"}}, "gpus", []any{[]any{"s", 0, 0, "s", "s"}}, "calls", []any{[]any{"s"}},
		"funcs", []any{[]any{"s"}},
		"graphs", []any{[]any{0, 0, []any{0, 1}}}, "libs", []any{[]any{"s", 0, 0, 0, []any{"s"}, []any{"s"}}},
		"cover", []any{[]any{0, 0, []any{"s"}}}, "stacks", []any{[]any{[]any{"s"}, "s"}},
	}
	empty := make(object, len(full))
	copy(empty, full)
	for i := 1; i < len(empty); i += 2 {
		empty[i] = []any{}
	}
	for name, data := range map[string][][]byte{
		"two messages":           {pack(full), pack(empty)},
		"one message":            {pack(append(slices.Clone(full), empty...))},
		"a refused one, another": {append(pack(full), 0), pack(empty)},
	} {
		d, b := schema.NewDecoder(), schema.Batch{}
		for _, m := range data {
			_ = d.Decode(m, &b)
		}
		kept(t, name, b.Processes)
		kept(t, name, b.Threads)
		kept(t, name, b.GPUs)
		kept(t, name, b.Calls)
		kept(t, name, b.Funcs)
		kept(t, name, b.Graphs)
		kept(t, name, b.Libraries)
		kept(t, name, b.Coverage)
		kept(t, name, b.Stacks)
	}
}

func kept[T any](t *testing.T, name string, rows []T) {
	t.Helper()
	if cap(rows) == 0 {
		t.Errorf("%s: no %T were read", name, rows)
	}
	for _, r := range rows[:cap(rows)] {
		if !reflect.ValueOf(r).IsZero() {
			t.Errorf("%s: kept %+v", name, r)
		}
	}
}

// allocated is the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
