package export

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// traceObject is an event as the specification of the trace event format has it.
type traceObject struct {
	Ph, Name, Cat, ID, S string
	PID, TID             *int64
	Ts, Dur              *float64
	Args                 map[string]any
}

type traceFile struct {
	DisplayTimeUnit string
	OtherData       map[string]string
	TraceEvents     []traceObject
}

// parseTrace checks the rules of the format: the fields of each phase, pairs of b and e, slices of a track that nest.
func parseTrace(t *testing.T, data []byte) (file traceFile) {
	t.Helper()
	check(t, json.Unmarshal(data, &file))
	open, slicesOf := map[string]*traceObject{}, map[string][]traceObject{}
	for i := range file.TraceEvents {
		e := &file.TraceEvents[i]
		if e.Name == "" || e.PID == nil || e.Ph != "M" && (e.Ts == nil || *e.Ts < 0) {
			t.Fatalf("%+v lacks a name, a pid or a time", e)
		}
		switch e.Ph {
		case "M":
			if e.Args["name"] == nil && e.Args["labels"] == nil && e.Args["sort_index"] == nil {
				t.Fatalf("%+v names nothing", e)
			}
		case "X":
			if e.Dur == nil || *e.Dur < 0 || e.TID == nil {
				t.Fatalf("%+v has no duration or thread", e)
			}
			track := fmt.Sprint(*e.PID, " ", *e.TID)
			slicesOf[track] = append(slicesOf[track], *e)
		case "i":
			if e.TID == nil || !slices.Contains([]string{"t", "p", "g"}, e.S) {
				t.Fatalf("%+v has no thread or scope", e)
			}
		case "C":
			for _, v := range e.Args {
				if n, is := v.(float64); !is || n < 0 {
					t.Fatalf("%+v is no counter", e)
				}
			}
		case "b", "e":
			key := fmt.Sprint(e.Cat, e.ID)
			begun := open[key]
			if e.Cat == "" || e.ID == "" || (begun == nil) != (e.Ph == "b") {
				t.Fatalf("%+v has no other end", e)
			}
			if open[key] = e; begun != nil {
				if *begun.Ts > *e.Ts || *begun.PID != *e.PID || begun.Name != e.Name {
					t.Fatalf("%+v ends %+v", e, begun)
				}
				delete(open, key)
			}
		default:
			t.Fatalf("%+v has another phase", e)
		}
	}
	if len(open) > 0 {
		t.Errorf("%d slices have no end", len(open))
	}
	for track, list := range slicesOf {
		checkNesting(t, track, list)
	}
	return file
}

func checkNesting(t *testing.T, track string, list []traceObject) {
	t.Helper()
	slices.SortStableFunc(list, func(a, b traceObject) int {
		if *a.Ts != *b.Ts {
			return int(math.Copysign(1, *a.Ts-*b.Ts))
		}
		return int(*b.Dur - *a.Dur)
	})
	var ends []float64
	const rounding = 0.002 // of µs with three digits
	for _, e := range list {
		for len(ends) > 0 && ends[len(ends)-1] <= *e.Ts+rounding {
			ends = ends[:len(ends)-1]
		}
		end := *e.Ts + *e.Dur
		if len(ends) > 0 && end > ends[len(ends)-1]+rounding {
			t.Fatalf("track %s: the slice %s at %v overlaps another one", track, e.Name, *e.Ts)
		}
		ends = append(ends, end)
	}
}

func TestTraceEqualsNaiveFigures(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	file := parseTrace(t, exported(t, "perfetto", f.record(), "-o", "-", "--min-bytes", "1MiB"))
	if file.DisplayTimeUnit != "ns" || file.OtherData["first_event_unix_ns"] == "" {
		t.Errorf("the head is %v", file.OtherData)
	}
	calls, kernels, streams := newFigures(), 0, 0
	for _, e := range file.TraceEvents {
		onStream := e.TID != nil && *e.TID >= firstStream
		switch {
		case e.Ph == "X" && !onStream:
			bytes, _ := e.Args["bytes"].(float64)
			calls.add(e.Cat, uint64(bytes), *e.Dur/1e6)
		case e.Ph == "i" && e.Name == "gemm(float*)" && !onStream:
			kernels++
		case (e.Ph == "i" || e.Ph == "X") && onStream:
			streams++
		}
	}
	for _, kind := range []string{"memory", "copy", "sync"} {
		if calls.counts[kind] != f.counts[kind] || calls.bytes[kind] != f.bytes[kind] ||
			calls.took[kind] != f.took[kind] {
			t.Errorf("%s: %d slices, %d bytes, %d ns; want %d, %d, %d", kind, calls.counts[kind], calls.bytes[kind],
				calls.took[kind], f.counts[kind], f.bytes[kind], f.took[kind])
		}
	}
	if kernels != f.counts["launch"] || streams != f.counts["launch"]+f.counts["copy"] {
		t.Errorf("%d launches of %d, %d events on CUDA streams", kernels, f.counts["launch"], streams)
	}
	f.compareLifetimes(&file)
	f.compareCounters(&file)
}

func (f *fleet) compareLifetimes(file *traceFile) {
	f.t.Helper()
	var got, want []string
	var begin traceObject
	for _, e := range file.TraceEvents {
		switch e.Ph {
		case "b":
			begin = e
		case "e":
			got = append(got, fmt.Sprint(begin.Args["address"], " ", uint64(begin.Args["bytes"].(float64)), " ",
				begin.Args["class"], " ", begin.Args["tid"], " ", e.Args["end"]))
		}
	}
	for _, l := range f.lives {
		end := "live"
		if l.until > 0 {
			end = "freed"
		}
		if l.bytes >= 1<<20 {
			want = append(want, fmt.Sprintf("%#x %d %s %d %s", l.ptr, l.bytes, l.class, l.tid, end))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.t.Errorf("%d lifetimes, want %d; the first is %.1q, want %.1q", len(got), len(want), got, want)
	}
}

// compareCounters compares the last point of each counter, and its number of points.
func (f *fleet) compareCounters(file *traceFile) {
	f.t.Helper()
	names, last, points := map[int64]string{}, map[string]float64{}, map[string]int{}
	for _, e := range file.TraceEvents {
		switch {
		case e.Name == "process_name":
			names[*e.PID] = e.Args["name"].(string)
		case e.Ph == "C" && strings.HasPrefix(e.Name, "GPU memory"):
			key := names[*e.PID] + ": " + e.Name
			last[key] = e.Args["bytes"].(float64)
			points[key]++
		}
	}
	wantLast, wantPoints := map[string]float64{}, map[string]int{}
	for _, l := range f.lives {
		name := fmt.Sprintf("%s (%d) on %s: GPU memory on GPU-%s", l.comm, l.pid, l.host, l.host)
		for _, key := range []string{name, name + ", " + l.class} {
			wantPoints[key]++
			if l.until == 0 {
				wantLast[key] += float64(l.bytes)
			} else {
				wantPoints[key]++
			}
		}
	}
	for key := range wantPoints {
		if points[key] != wantPoints[key] || last[key] != wantLast[key] {
			f.t.Errorf("%s has %d points and ends at %v; want %d, %v", key, points[key], last[key], wantPoints[key],
				wantLast[key])
		}
	}
	if len(points) != len(wantPoints) {
		f.t.Errorf("%d counters, want %d", len(points), len(wantPoints))
	}
}

// TestTraceShowsMemoryFromBeforeAndItsEnd begins behind an allocation, and has the end of its process.
func TestTraceShowsMemoryFromBeforeAndItsEnd(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	f := &fleet{t: t}
	p.Alloc(7, 0x1000, 4<<20, 1e9, 5)
	f.add(schema.KindMemory, h.Message())
	p.Alloc(7, 0x800000, 2<<20, 3e9, 5)
	f.add(schema.KindMemory, h.Message())
	p.Free(7, 0x800000, 4e9, 5).Exit(5e9)
	f.add(schema.KindMemory, h.Message())
	since := time.Unix(0, wallOffset).Add(time.Second).UTC().Format(time.RFC3339)
	file := parseTrace(t, exported(t, "perfetto", f.record(), "-o", "-", "--since", since))
	var got []string
	for _, e := range file.TraceEvents {
		switch {
		case e.Ph == "b":
			got = append(got, fmt.Sprint("begin ", e.Args["address"], " at ", *e.Ts, " since ", e.Args["allocated"]))
		case e.Ph == "e":
			got = append(got, fmt.Sprint(e.Args["end"], " at ", *e.Ts))
		case e.Ph == "C" && strings.HasSuffix(e.Name, "GPU-0"):
			got = append(got, fmt.Sprint(e.Args["bytes"], " at ", *e.Ts))
		}
	}
	want := []string{
		"begin 0x800000 at 0.005 since <nil>", "freed at 1e+06",
		"begin 0x1000 at 0 since 2023-11-14T22:13:21.000000005Z", "unfreed at 2e+06",
		"4.194304e+06 at 0", "6.291456e+06 at 0.005", "4.194304e+06 at 1e+06", "0 at 2e+06",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
