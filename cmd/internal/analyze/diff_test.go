package analyze

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

const (
	minute = schema.KTime(time.Minute)
	mib    = 1 << 20
	gib    = 1 << 30
)

// lab is one run of train (rank 1 of a job) with two processes, and of serve.
type lab struct {
	step     uint64 // bytes that rank 1 allocates every minute, and never frees
	launches int    // of the kernel axpy
	copies   int    // of 1 MiB from host to device, in 1 ms each
	sets     int    // of 1 MiB
	comm     string // of the process without a job
}

// recording writes the run, which takes five minutes.
func (l lab) recording(t *testing.T) string {
	t.Helper()
	h := consumertest.Memory(t, "gpu-7")
	first, second2 := h.Process(7, second/2, "train"), h.Process(8, second/2, "train")
	for _, p := range []*consumertest.Process{first, second2} {
		p.Job, p.Rank, p.GPU = "slurm:1", 2, &schema.GPU{UUID: "GPU-0"} // rank 1
	}
	serve := h.Process(9, second/2, l.comm)
	serve.GPU = &schema.GPU{UUID: "GPU-0"}
	serve.Alloc(9, 0x900, 10, second, 0).Free(9, 0x900, 2*second, 0)
	first.Alloc(7, 0x100, gib, minute, 0)
	second2.Alloc(8, 0x200, 2*gib, minute, 0).Free(8, 0x200, 2*minute, 0)
	for i := range uint64(5) {
		first.Alloc(7, 0x1000+i, l.step, schema.KTime(1+i)*minute+second, 0)
	}
	serve.Alloc(9, 0xa00, 20, 6*minute, 0)
	messages := [][]byte{bytes.Clone(h.Message())}
	encode := func(kind schema.Kind, fill func(b *schema.Builder, thread uint32)) {
		b := schema.NewBuilder(kind)
		fill(b, b.Thread(schema.Thread{Process: b.Process(first.Process), TID: 7}))
		header := h.Header
		header.Seq = 1
		messages = append(messages, bytes.Clone(b.Encode(&header)))
	}
	encode(schema.KindLaunch, func(b *schema.Builder, thread uint32) {
		for range l.launches {
			b.AddLaunch(&schema.Launch{Time: minute, Thread: thread, CUDAStream: b.CUDAStream(0),
				Shape: b.Shape(schema.LaunchShape{Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel",
					Op: schema.OpLaunch}), Func: b.Func(schema.Func{Name: "axpy"})})})
		}
	})
	encode(schema.KindCopy, func(b *schema.Builder, thread uint32) {
		for range l.copies {
			b.AddCopy(&schema.Copy{Time: minute, Duration: 1e6, Thread: thread, Bytes: mib, CUDAStream: b.CUDAStream(0),
				Call: b.Call(schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD})})
		}
		for range l.sets {
			b.AddCopy(&schema.Copy{Time: minute, Duration: 1e6, Thread: thread, Bytes: mib, CUDAStream: b.CUDAStream(0),
				Call: b.Call(schema.CallRef{Symbol: "cuMemsetD8_v2", Op: schema.OpSet})})
		}
	})
	return written(t, messages, schema.KindMemory, schema.KindLaunch, schema.KindCopy)
}

// written writes messages of these kinds into a recording.
func written(t *testing.T, messages [][]byte, kinds ...schema.Kind) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	check(t, w.AddStreams(recording.Selection{}, []recording.Stream{{Name: "GPUTAP_EV_000", Created: wallStart,
		State: recording.KnowledgeComplete}}))
	for i, kind := range kinds {
		check(t, w.Append(&recording.Message{Sequence: uint64(1 + i), Stored: wallStart.Add(6 * time.Minute),
			Subject: schema.Subject(0, "test", "gpu-7", kind), Data: messages[i]}))
	}
	check(t, w.Close())
	return path
}

// rows returns the rows of an answer: process, what, measure, name, a, b, change.
func rows(t *testing.T, text string) (list []string) {
	t.Helper()
	for _, one := range object(t, text)["processes"].([]any) {
		p := one.(map[string]any)
		a, b := p["a"].(map[string]any), p["b"].(map[string]any)
		for key := range a {
			list = append(list, fmt.Sprint(p["comm"], " ", p["rank"], " ", key, " ", a[key], " ", b[key]))
		}
		for _, row := range p["groups"].([]any) {
			g := row.(map[string]any)
			list = append(list, fmt.Sprint(p["comm"], " ", p["rank"], " ", g["what"], " ", g["measure"], " (",
				g["name"], ") ", g["a"], " ", g["b"], " ", g["change"]))
		}
	}
	return list
}

// TestDiff compares runs whose differences were computed by hand. Growth: after each minute there are 16 MiB more, so
// the minima of the minutes rise by 960 MiB an hour; in the other run by 0.
func TestDiff(t *testing.T) {
	t.Parallel()
	a := lab{step: mib, launches: 10, copies: 4, comm: "serve"}.recording(t)
	b := lab{step: 16 * mib, launches: 15, copies: 2, comm: "other"}.recording(t)
	stdout, err := typed(t, "diff", a, b, "-o", "json")
	check(t, err)
	got := rows(t, stdout)
	const (
		large = "(device, thread train, cuMemAlloc_v2, 1.00 GiB and more) "
		small = "(device, thread serve, cuMemAlloc_v2, 16 B and more) "
	)
	for _, want := range []string{
		"train 1 processes 2 2",
		number("train 1 peak_bytes", 3*gib+5*mib, 3*gib+80*mib),
		number("train 1 live_bytes", gib+5*mib, gib+80*mib),
		number("train 1 growth_bytes_per_hour", 60*mib, 960*mib),
		"train 1 allocations 7 7", "train 1 launches 10 15", "train 1 copy_calls 4 2",
		number("train 1 copy_bytes", 4*mib, 2*mib),
		number("train 1 memory live_bytes "+large[:len(large)-1], gib, gib, 0),
		"train 1 memory allocations " + large + "1 1 0",
		"train 1 memory allocations (device, thread train, cuMemAlloc_v2, 16.00 MiB and more) 0 5 5",
		number("train 1 memory peak_bytes (device, thread train, cuMemAlloc_v2, 1.00 MiB and more)", 5*mib, 0, -5*mib),
		"train 1 kernel launches (axpy) 10 15 5", "train 1 copy calls (HtoD <=1MiB) 4 2 -2",
		number("train 1 copy bytes (HtoD <=1MiB)", 4*mib, 2*mib, -2*mib),
		number("train 1 copy bytes_per_second (HtoD <=1MiB)", 1000*mib, 1000*mib, 0),
		"serve <nil> processes 1 0", "serve <nil> peak_bytes 20 0", "serve <nil> allocations 2 0",
		"serve <nil> growth_bytes_per_hour 0 <nil>", "serve <nil> memory live_bytes " + small + "20 0 -20",
		"other <nil> live_bytes 0 20",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no row %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if o := object(t, stdout); o["complete"] != true || len(o["missing"].([]any)) != 0 ||
		o["findings"].(map[string]any)["b"] == nil {
		t.Errorf("got %s", stdout)
	}
	first := object(t, stdout)["processes"].([]any)[0].(map[string]any)
	largest := first["groups"].([]any)[0].(map[string]any)
	if first["comm"] != "train" || largest["measure"] != "allocations" || largest["change"] != -5. { // of 9
		t.Errorf("the largest change is %v of %v", largest, first["comm"])
	}
}

// number returns a row with numbers as JSON spells them in Go.
func number(row string, values ...float64) string {
	for _, v := range values {
		row += fmt.Sprint(" ", v)
	}
	return row
}

// TestDiffSwapped compares with both runs exchanged: a and b change places, and a change is negated.
func TestDiffSwapped(t *testing.T) {
	t.Parallel()
	a := lab{step: mib, launches: 10, copies: 4, comm: "serve"}.recording(t)
	b := lab{step: 16 * mib, launches: 15, copies: 2, comm: "other"}.recording(t)
	read := func(x, y string) map[string][3]any {
		stdout, err := typed(t, "diff", x, y, "-o", "json")
		check(t, err)
		all := map[string][3]any{}
		for _, one := range object(t, stdout)["processes"].([]any) {
			p := one.(map[string]any)
			all[fmt.Sprint(p["comm"])] = [3]any{fmt.Sprint(p["a"]), fmt.Sprint(p["b"]), 0.}
			for _, row := range p["groups"].([]any) {
				g := row.(map[string]any)
				change := g["change"]
				if v, known := change.(float64); known {
					change = v + 0 // no negative zero
				}
				all[fmt.Sprint(p["comm"], g["what"], g["measure"], g["name"])] = [3]any{g["a"], g["b"], change}
			}
		}
		return all
	}
	there, back := read(a, b), read(b, a)
	if len(there) < 20 || len(there) != len(back) {
		t.Fatalf("%d rows and %d swapped", len(there), len(back))
	}
	for key, x := range there {
		y := back[key]
		change, known := x[2].(float64)
		if x[0] != y[1] || x[1] != y[0] || known && change != -y[2].(float64) {
			t.Errorf("%s: %v, swapped %v", key, x, y)
		}
	}
}

func TestDiffText(t *testing.T) {
	t.Parallel()
	a := lab{step: mib, launches: 10, copies: 4, comm: "serve"}.recording(t)
	b := lab{step: mib, launches: 15, copies: 4, comm: "serve"}.recording(t)
	stdout, err := typed(t, "diff", a, b)
	const want = `COMMAND  RANK  WHAT     MEASURE    A   B  DIFFERENCE  FACTOR  NAME
train    1     process  launches  10  15          +5     1.5
train    1     kernel   launches  10  15          +5     1.5  axpy
`
	if err != nil || stdout != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, stdout, want)
	}
	stdout, err = typed(t, "diff", a, b, "--comm", "serve")
	if err != nil || stdout != "no differences\n" {
		t.Errorf("got %q, %v", stdout, err)
	}
	many := lab{step: 64 * mib, launches: 15, copies: 9, comm: "other"}.recording(t)
	stdout, err = typed(t, "diff", a, many)
	if lines := strings.Count(stdout, "\n"); err != nil || lines != 1+maxDiffRows+1 ||
		!strings.Contains(stdout, "more differences; -o json shows all") {
		t.Errorf("%d lines, %v:\n%s", lines, err, stdout)
	}
}

func TestDiffOfIncompleteData(t *testing.T) {
	t.Parallel()
	a := recorded(t, false)
	data, err := os.ReadFile(a)
	check(t, err)
	cut := filepath.Join(t.TempDir(), "cut.gputap")
	check(t, os.WriteFile(cut, data[:len(data)-10], 0o600))
	for _, row := range []struct {
		args   []string
		status int
		err    string
	}{
		{[]string{a, cut}, 4, "b: "}, {[]string{cut, a}, 4, "a: "}, {[]string{a, a}, 0, ""},
		{[]string{a, a, "-o", "xml"}, 2, "use text, json, csv"}, {[]string{a, a + "none"}, 1, "none"},
	} {
		_, err := typed(t, append([]string{"diff"}, row.args...)...)
		if got := app.ExitCode(err); got != row.status || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%v: status %d, %v", row.args, got, err)
		}
	}
	x, y := &side{selection: recording.Selection{Kinds: []schema.Kind{schema.KindMemory}}}, &side{}
	if d := compare(x, y); d.Complete || len(d.Missing) != 2 ||
		d.Missing[0] != "a: events of the kind launch are not recorded" {
		t.Errorf("missing: %q", d.Missing)
	}
}

// TestDiffOfRealRuns compares a recorded run of real programs with itself.
func TestDiffOfRealRuns(t *testing.T) {
	t.Parallel()
	const path = "../harness/corpus/testdata/third/copy.gputap"
	if stdout, err := typed(t, "diff", path, path); err != nil || !strings.HasPrefix(stdout, "no differences\n") {
		t.Errorf("%v: %s", err, stdout)
	}
}

func TestTheilSen(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"level", []float64{5, 5, 5}, 0}, {"line", []float64{1, 3, 5, 7}, 2}, {"falling", []float64{9, 6, 3}, -3},
		{"one outlier", []float64{0, 1, 100, 3, 4}, 1}, {"even number of slopes", []float64{0, 1, 4, 9}, 3},
	} {
		if got := theilSen(row.values); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", row.name, got, row.want)
		}
	}
}
