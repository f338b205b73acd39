// Command bench runs the benchmarks of the tree and prints two tables: the measured values with their budgets, and what
// the host agent costs under steady loads. `bench agent` prints the second table alone. A ratio compares values of one
// run. It needs root, because it attaches probes.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// figure is one row: a metric of a benchmark and its budget.
type figure struct {
	what      string
	pkg       string
	benchmark string // name without the CPU suffix
	unit      string
	scale     float64 // 0: 1
	atMost    float64 // 0: no upper budget
	atLeast   float64 // 0: no lower budget
}

const million = 1e-6

var figures = []figure{
	{"traced call, 1 thread: entry record / empty entry", "./bpf", "BenchmarkTracedCall/threads=1", "entry-ratio", 0, 1.45, 0},
	{"traced call, 1 thread: copy record / empty pair", "./bpf", "BenchmarkTracedCall/threads=1", "pair-ratio", 0, 1.35, 0},
	{"traced call, 1 thread: memory record / empty pair", "./bpf", "BenchmarkTracedCall/threads=1", "memory-ratio", 0, 1.35, 0},
	{"  its empty entry, ns", "./bpf", "BenchmarkTracedCall/threads=1", "entry-empty-ns", 0, 0, 0},
	{"  its empty pair, ns", "./bpf", "BenchmarkTracedCall/threads=1", "pair-empty-ns", 0, 0, 0},
	{"traced call, every CPU: entry record / empty entry", "./bpf", "BenchmarkTracedCall/all", "entry-ratio", 0, 1.5, 0},
	{"traced call, every CPU: copy record / empty pair", "./bpf", "BenchmarkTracedCall/all", "pair-ratio", 0, 1.5, 0},
	{"traced call, every CPU: memory record / empty pair", "./bpf", "BenchmarkTracedCall/all", "memory-ratio", 0, 1.5, 0},
	{"ring → encoded batch, launches, ns/event", "./producer", "BenchmarkRingToBatch/launch", "ns/event", 0, 200, 0},
	{"ring → encoded batch, memory, ns/event", "./producer", "BenchmarkRingToBatch/alloc", "ns/event", 0, 200, 0},
	{"ring → encoded batch, copies, ns/event", "./producer", "BenchmarkRingToBatch/copy", "ns/event", 0, 200, 0},
	{"ring → JetStream ack, embedded, M events/s", "./producer", "BenchmarkRingToAck", "Mevents/s", 0, 0, 8},
	{"  raw publishes of the same bytes, M events/s", "./producer", "BenchmarkRingToAck", "raw-Mevents/s", 0, 0, 0},
	{"  ring → ack / raw publishes", "./producer", "BenchmarkRingToAck", "ratio", 0, 0, 0},
	{"  ring → ack / encoding without publishing", "./producer", "BenchmarkRingToAck", "made-ratio", 0, 0, 0},
	{"encode, memory, ns/event", "./schema", "BenchmarkEncode/memory", "ns/event", 0, 0, 0},
	{"  encode as msgpack rows with reflection, ns/event", "./schema", "BenchmarkEncode/memory/rows", "ns/event", 0, 0, 0},
	{"decode, memory, ns/event", "./schema", "BenchmarkDecode/memory", "ns/event", 0, 0, 0},
	{"  decode of msgpack rows with reflection, ns/event", "./schema", "BenchmarkDecode/memory/rows", "ns/event", 0, 0, 0},
	{"wire, memory of the recorded PyTorch run, B/event", "./schema", "BenchmarkRecordedRun", "memory-B/event", 0, 22, 0},
	{"wire, launches of the recorded PyTorch run, B/event", "./schema", "BenchmarkRecordedRun", "launch-B/event", 0, 16, 0},
	{"  decode of its launches, all columns, ns/event", "./schema", "BenchmarkRecordedRun", "launch-decode-ns/event", 0, 0, 0},
	{"stored batch → applied, M events/s", "./consumer", "BenchmarkReadStream", "Mevents/s", 0, 0, 0},
	{"  an ordered no-op consumer, M events/s", "./consumer", "BenchmarkReadStream", "raw-Mevents/s", 0, 0, 0},
	{"  stored batch → applied / no-op consumer", "./consumer", "BenchmarkReadStream", "ratio", 0, 0, 0.8},
	{"publish one batch → applied, ms", "./consumer", "BenchmarkPublishToApply", "ns/op", million, 0, 0},
	{"call → folded, 1,000 calls/s, default settings, p50 ms", "./cmd/gputap", "BenchmarkCallToFold", "p50-ms", 0, 0, 0},
	{"call → folded, 1,000 calls/s, default settings, p99 ms", "./cmd/gputap", "BenchmarkCallToFold", "p99-ms", 0, 250, 0},
	{"fold leak, decode included, M events/s", "./consumer/leak", "BenchmarkApply/one_context", "events/s", million, 0, 10},
	{"  a thousand hosts in turn, batches of 320 events, ns/event", "./consumer/leak", "BenchmarkApplyFleet/320_events", "ns/event", 0, 0, 0},
	{"fold launch, decode included, M events/s", "./consumer/launch", "BenchmarkApply/one_GPU,_decode_included", "Mevents/s", 0, 0, 40},
	{"fold bandwidth, decode included, M events/s", "./consumer/bandwidth", "BenchmarkApply/one_GPU,_decode_included", "Mevents/s", 0, 0, 40},
	{"fold anomaly, M events/s", "./consumer/anomaly", "BenchmarkApply/ordinary", "events/s", million, 0, 20},
	{"a shard of 625 ordinary hosts, read for memory, ns/message", "./consumer", "BenchmarkReadFleet/ordinary", "ns/message", 0, 0, 0},
	{"  ordinary hosts, ratio to a no-op consumer", "./consumer", "BenchmarkReadFleet/ordinary", "ratio", 0, 0, 0.8},
	{"  hosts with equally many batches of each kind, ratio to a no-op consumer", "./consumer", "BenchmarkReadFleet/even", "ratio", 0, 0, 0.8},
	{"leak state, B per live allocation", "./consumer/leak", "BenchmarkLiveBytes/1.5M", "B/allocation", 0, 64, 0},
	{"checkpoint of leak state, B per live allocation", "./consumer/leak", "BenchmarkSnapshot/Snapshot", "B/allocation", 0, 30, 0},
	{"checkpoint of 2 M live allocations, ms", "./consumer/leak", "BenchmarkSnapshot/Snapshot", "ns/op", million, 1000, 0},
	{"restore of 2 M live allocations, ms", "./consumer/leak", "BenchmarkSnapshot/Restore", "ns/op", million, 1000, 0},
	{"scrape with 1 M live allocations, worst ms", "./consumer/leak", "BenchmarkReport1M/Collect", "worst-ms", 0, 10, 0},
	{"report rows with 1 M live allocations, worst ms", "./consumer/leak", "BenchmarkReport1M/Top1000", "worst-ms", 0, 10, 0},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		cluster.Main("bench agent", measureAgent)
		return
	}
	cluster.Main("bench", measureAll)
}

func measureAll(ctx context.Context) error {
	measured := map[string]float64{}
	for _, pkg := range packages() {
		fmt.Fprintf(os.Stderr, "measuring %s\n", pkg)
		if err := measure(ctx, pkg, measured); err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
	}
	fmt.Println("| what | measured | budget | |\n| --- | ---: | ---: | --- |")
	for _, f := range figures {
		f.print(measured)
	}
	return measureAgent(ctx)
}

// packages are those of the figures, in their order.
func packages() (list []string) {
	for _, f := range figures {
		if !slices.Contains(list, f.pkg) {
			list = append(list, f.pkg)
		}
	}
	return list
}

// measure runs the benchmarks of one package and stores their metrics as "pkg benchmark unit".
func measure(ctx context.Context, pkg string, to map[string]float64) error {
	args := []string{"test", "-tags", "bpf", "-run", "^$", "-bench", ".", "-count", "1", pkg}
	switch pkg {
	case "./bpf", "./cmd/gputap":
		args = append(args, "-benchtime", "1x") // these benchmarks repeat and take medians themselves
	case "./producer":
		args = append(args, "-benchtime", "5x")
	default:
		args = append(args, "-benchtime", "1s")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := cpuSuffix.ReplaceAllString(fields[0], "")
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				to[pkg+" "+name+" "+fields[i+1]] = v
			}
		}
	}
	return nil
}

var cpuSuffix = regexp.MustCompile(`-\d+$`)

func (f figure) print(measured map[string]float64) {
	v, ok := measured[f.pkg+" "+f.benchmark+" "+f.unit]
	if !ok {
		fmt.Printf("| %s | not measured | | |\n", f.what)
		return
	}
	if f.scale != 0 {
		v *= f.scale
	}
	budget, verdict := "", ""
	switch {
	case f.atMost > 0:
		budget = fmt.Sprintf("≤ %g", f.atMost)
		verdict = missed(v > f.atMost)
	case f.atLeast > 0:
		budget = fmt.Sprintf("≥ %g", f.atLeast)
		verdict = missed(v < f.atLeast)
	}
	fmt.Printf("| %s | %.4g | %s | %s |\n", f.what, v, budget, verdict)
}

func missed(b bool) string {
	if b {
		return "missed"
	}
	return "ok"
}
