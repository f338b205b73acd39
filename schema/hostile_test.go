package schema_test

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// good is a small launch batch whose parts the rows of TestHostile replace.
func good(replace ...any) []byte {
	o := object{
		"v", 1, "k", "launch", "h", "gpu01", "n", 2,
		"procs", []any{[]any{1, 1, 0, "a", "", "", 0}}, "threads", []any{[]any{0, 1, ""}}, "gpus", []any{[]any{"GPU-0", 0}},
		"calls", []any{[]any{"cuLaunchKernel", "launch", "", ""}}, "funcs", []any{[]any{"k", 1}},
		"shapes", []any{[]any{0, 0, 1, 1, 1, 1, 1, 1, 0}}, "streams", []any{0},
	}
	cols := object{"t", col(5, 1, 0, 1), "th", col(0, 0), "g", col(0, 1, 0, 1), "s", col(0, 0), "q", col(0, 0)}
	for i := 0; i < len(replace); i += 2 {
		if !o.set(replace[i], replace[i+1]) && !cols.set(replace[i], replace[i+1]) {
			o = append(o, replace[i], replace[i+1])
		}
	}
	return pack(append(o, "cols", cols))
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
		{"a list in a row claims 20 M", append([]byte("\x81\xa4libs\x91\x95\xa0\x00\x00\x00"), 0xdd, 0x01, 0x31, 0x2d, 0x00)},
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
		{"wrapping base, width 8", good("s", col(1, 8, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0))},
		{"thread of no process", good("threads", []any{[]any{1, 1, ""}})},
		{"shape of no call", good("shapes", []any{[]any{1, 0}})},
		{"shape of no function", good("shapes", []any{[]any{0, 1}})},
		{"thread index of 33 bits", good("threads", []any{[]any{1 << 32, 1, ""}})},
		{"negative pid", good("procs", []any{[]any{-1}})},
		{"pid as text", good("procs", []any{[]any{"1"}})},
		{"huge string", good("h", strings.Repeat("x", 4097))},
		{"huge key", pack(object{strings.Repeat("x", 4097), 1})},
		{"events above the cap", good("n", schema.MaxEvents+1)},
		{"negative events", good("n", -1)},
		{"200 k nested arrays under an unknown key", append([]byte("\x81\xa1?"), bytes.Repeat([]byte{0x91}, 200_000)...)},
		{"200 k nested maps in a row", append([]byte("\x81\xa5funcs\x91\x93\xa0\x00"), bytes.Repeat([]byte{0x81}, 200_000)...)},
		{"a message above the cap", make([]byte, schema.MaxMessageBytes+1)},
	}
	var b schema.Batch
	if err := schema.NewDecoder().Decode(good(), &b); err != nil {
		t.Fatalf("the untouched message: %v", err)
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
	for _, g := range goldens {
		data := g.bytes()
		for n := range data {
			if err := d.Decode(data[:n:n], &b); !errors.Is(err, schema.ErrMalformed) {
				t.Fatalf("%s cut to %d bytes: error %v, want ErrMalformed", g.name, n, err)
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

// TestReusedBatch: nothing of one message shines through in the next.
func TestReusedBatch(t *testing.T) {
	d := schema.NewDecoder()
	var b schema.Batch
	for range 2 {
		for _, g := range goldens {
			var fresh schema.Batch
			if err := d.Decode(g.bytes(), &b); err != nil {
				t.Fatal(err)
			}
			if err := schema.NewDecoder().Decode(g.bytes(), &fresh); err != nil {
				t.Fatal(err)
			}
			if got, want := rowsText(&b), rowsText(&fresh); got != want {
				t.Errorf("%s into a used batch\n%s\nwant\n%s", g.name, got, want)
			}
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
