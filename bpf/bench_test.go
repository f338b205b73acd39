//go:build bpf

package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/gputap/gputap/schema"
)

// The benchmark compares the cost of a traced call with an empty program on the same function in the same run. The
// function is stubNop, which begins with push like those of the driver. The rings hold every record of a round, so no
// reader runs.
//
// Variants take turns and medians are compared, because absolute values drift by a third. Rounds are shorter on a
// machine with many CPUs, where creating the rings takes long.
const rounds = 15

var calls, ring = sizes()

func sizes() (calls, ring int) {
	if runtime.NumCPU() > 8 {
		return 10_000, 1 << 20
	}
	return 80_000, 8 << 20
}

type variant struct {
	name        string
	entry, exit string // programs; "" for none
	shape       schema.Shape
	filter      Filter
}

func BenchmarkTracedCall(b *testing.B) {
	for _, threads := range []int{1, runtime.NumCPU()} {
		name := "threads=1"
		if threads > 1 {
			name = "all"
		}
		b.Run(name, func(b *testing.B) { compare(b, threads) })
	}
}

func compare(b *testing.B, threads int) {
	nobody := Filter{Comms: []string{"nobody"}}
	variants := []variant{
		{name: "bare"},
		{
			name: "entry-empty", entry: TapProgEmpty,
		}, {name: "entry-record", entry: TapProgLaunchEnter, shape: schema.ShapeLaunch},
		{name: "entry-tensor", entry: TapProgTensorEnter, shape: schema.ShapeBlock},
		{name: "pair-empty", entry: TapProgEmpty, exit: TapProgEmpty},
		{name: "pair-record", entry: TapProgCallEnter, exit: TapProgCopyExit, shape: schema.ShapeCopy},
		{name: "pair-memory", entry: TapProgCallEnter, exit: TapProgMemoryExit, shape: schema.ShapeFree},
		{name: "entry-passed-over", entry: TapProgLaunchEnter, shape: schema.ShapeLaunch, filter: nobody},
		{
			name: "pair-passed-over", entry: TapProgCallEnter, exit: TapProgMemoryExit, shape: schema.ShapeFree,
			filter: nobody,
		},
	}
	took := map[string][]float64{}
	for range rounds {
		for _, v := range variants {
			took[v.name] = append(took[v.name], nsPerCall(b, v, threads))
		}
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return took[name][rounds/2]
	}
	for _, v := range variants {
		b.ReportMetric(median(v.name), v.name+"-ns")
	}
	b.ReportMetric(median("entry-record")/median("entry-empty"), "entry-ratio")
	b.ReportMetric(median("entry-tensor")/median("entry-empty"), "tensor-ratio")
	b.ReportMetric(median("pair-record")/median("pair-empty"), "pair-ratio")
	b.ReportMetric(median("pair-memory")/median("pair-empty"), "memory-ratio")
	b.ReportMetric(median("entry-passed-over")/median("entry-empty"), "entry-passed-over-ratio")
	b.ReportMetric(median("pair-passed-over")/median("pair-empty"), "pair-passed-over-ratio")
	b.ReportMetric(0, "ns/op")
}

func nsPerCall(b *testing.B, v variant, threads int) float64 {
	tap, err := Load(threads*8*ring, v.shape == schema.ShapeBlock, true, v.filter)
	if err != nil {
		b.Fatal(err)
	}
	defer tap.Close()
	library, err := filepath.Abs("../bin/stub/libcuda.so.1")
	if err != nil {
		b.Fatal(err)
	}
	ex, err := link.OpenExecutable(library)
	if err != nil {
		b.Fatal(err)
	}
	options := &link.UprobeMultiOptions{Cookies: []uint64{2 | uint64(v.shape)<<CookieShape}}
	if v.entry != "" {
		l, err := ex.UprobeMulti([]string{"stubNop"}, tap.coll.Programs[v.entry], options)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
	}
	if v.exit != "" {
		l, err := ex.UretprobeMulti([]string{"stubNop"}, tap.coll.Programs[v.exit], options)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
	}
	out, err := exec.Command(
		"../bin/workload", "bench", "nop", "--count", fmt.Sprint(calls), "--threads", fmt.Sprint(threads),
	).Output()
	if err != nil {
		b.Fatalf("workload bench: %v", err)
	}
	_, rest, _ := strings.Cut(string(out), "ns_per_call ")
	var ns float64
	if _, err := fmt.Sscan(rest, &ns); err != nil {
		b.Fatalf("workload printed %q", out)
	}
	lost, err := tap.Lost()
	if err != nil {
		b.Fatal(err)
	}
	if n := lost[0] + lost[1] + lost[2] + lost[5]; n > 0 && os.Getenv("GPUTAP_BENCH_LOSSY") == "" {
		b.Fatalf("%s lost %v records, so the figure would be too low", v.name, lost)
	}
	return ns
}
