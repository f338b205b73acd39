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
)

// What a traced call costs against the floor: an empty program on the same function, in the same
// run. The function is stubNop, which begins with push as the driver's do. Rings of the default size
// hold every record of a round, so no reader takes part.
//
// Variants take turns; medians are compared, since absolute values drift by a third.
const (
	calls  = 80_000
	rounds = 15
	ring   = 8 << 20
)

type variant struct {
	name        string
	entry, exit string // programs; "" for none
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
	variants := []variant{
		{"bare", "", ""},
		{"entry-empty", TapProgEmpty, ""}, {"entry-record", TapProgLaunchEnter, ""},
		{"pair-empty", TapProgEmpty, TapProgEmpty}, {"pair-record", TapProgCopyEnter, TapProgCopyExit},
		{"pair-memory", TapProgFreeEnter, TapProgFreeExit},
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
	b.ReportMetric(median("pair-record")/median("pair-empty"), "pair-ratio")
	b.ReportMetric(median("pair-memory")/median("pair-empty"), "memory-ratio")
	b.ReportMetric(0, "ns/op")
}

func nsPerCall(b *testing.B, v variant, threads int) float64 {
	tap, err := Load(threads*2*ring, ring)
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
	options := &link.UprobeMultiOptions{Cookies: []uint64{2}}
	if v.entry != "" {
		l, err := ex.UprobeMulti([]string{"stubNop"}, tap.Program(v.entry), options)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
	}
	if v.exit != "" {
		l, err := ex.UretprobeMulti([]string{"stubNop"}, tap.Program(v.exit), options)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
	}
	out, err := exec.Command("../bin/workload", "bench", "nop", "--count", fmt.Sprint(calls), "--threads", fmt.Sprint(threads)).Output()
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
	if n := lost[0] + lost[1] + lost[2]; n > 0 && os.Getenv("GPUTAP_BENCH_LOSSY") == "" {
		b.Fatalf("%s lost %v records: the figure would flatter", v.name, lost)
	}
	return ns
}
