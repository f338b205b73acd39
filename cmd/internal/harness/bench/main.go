// Command bench runs the benchmarks of the tree and prints two tables: the measured values with their budgets, and the
// cost of the host agent under steady loads. `bench agent` prints the second table alone. A ratio compares values of
// one run. It needs root, because it attaches probes.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// figure is one row: a metric of a benchmark and its budget.
type figure struct {
	what      string
	benchmark string // name without the CPU suffix
	unit      string
	budget    budget
}

// budget limits a figure.
type budget struct{ atMost, atLeast float64 } // 0: none

var none budget

func atMost(v float64) budget  { return budget{atMost: v} }
func atLeast(v float64) budget { return budget{atLeast: v} }

// scales convert units of benchmarks into those of the table: millions of events per second, and milliseconds.
var scales = map[string]float64{"events/s": 1e-6, "ns/op": 1e-6}

// figures are in the order in which they are measured and printed.
var figures = []struct {
	pkg  string
	list []figure
}{
	{"./bpf", []figure{
		{"traced call, 1 thread: entry record / empty entry", "BenchmarkTracedCall/threads=1", "entry-ratio",
			atMost(1.45)},
		{"traced call, 1 thread: copy record / empty pair", "BenchmarkTracedCall/threads=1", "pair-ratio",
			atMost(1.35)},
		{"traced call, 1 thread: memory record / empty pair", "BenchmarkTracedCall/threads=1", "memory-ratio",
			atMost(1.35)},
		{"  its empty entry, ns", "BenchmarkTracedCall/threads=1", "entry-empty-ns", none},
		{"  its empty pair, ns", "BenchmarkTracedCall/threads=1", "pair-empty-ns", none},
		{"traced call, every CPU: entry record / empty entry", "BenchmarkTracedCall/all", "entry-ratio", atMost(1.5)},
		{"traced call, every CPU: copy record / empty pair", "BenchmarkTracedCall/all", "pair-ratio", atMost(1.5)},
		{"traced call, every CPU: memory record / empty pair", "BenchmarkTracedCall/all", "memory-ratio", atMost(1.5)},
	}},
	{"./producer", []figure{
		{"ring → encoded batch, launches, ns/event", "BenchmarkRingToBatch/launch", "ns/event", atMost(200)},
		{"ring → encoded batch, memory, ns/event", "BenchmarkRingToBatch/alloc", "ns/event", atMost(200)},
		{"ring → encoded batch, copies, ns/event", "BenchmarkRingToBatch/copy", "ns/event", atMost(200)},
		{"ring → JetStream ack, embedded, M events/s", "BenchmarkRingToAck", "Mevents/s", atLeast(8)},
		{"  raw publishes of the same bytes, M events/s", "BenchmarkRingToAck", "raw-Mevents/s", none},
		{"  ring → ack / raw publishes", "BenchmarkRingToAck", "ratio", none},
		{"  ring → ack / encoding without publishing", "BenchmarkRingToAck", "made-ratio", none},
	}},
	{"./schema", []figure{
		{"encode, memory, ns/event", "BenchmarkEncode/memory", "ns/event", none},
		{"  encode as msgpack rows with reflection, ns/event", "BenchmarkEncode/memory/rows", "ns/event", none},
		{"decode, memory, ns/event", "BenchmarkDecode/memory", "ns/event", none},
		{"  decode of msgpack rows with reflection, ns/event", "BenchmarkDecode/memory/rows", "ns/event", none},
		{"wire, memory of the recorded PyTorch run, B/event", "BenchmarkRecordedRun", "memory-B/event", atMost(22)},
		{"wire, launches of the recorded PyTorch run, B/event", "BenchmarkRecordedRun", "launch-B/event", atMost(16)},
		{"  decode of its launches, all columns, ns/event", "BenchmarkRecordedRun", "launch-decode-ns/event", none},
	}},
	{"./consumer", []figure{
		{"stored batch → applied, M events/s", "BenchmarkReadStream", "Mevents/s", none},
		{"  an ordered no-op consumer, M events/s", "BenchmarkReadStream", "raw-Mevents/s", none},
		{"  stored batch → applied / no-op consumer", "BenchmarkReadStream", "ratio", atLeast(0.8)},
		{"publish one batch → applied, ms", "BenchmarkPublishToApply", "ns/op", none},
		{"a shard of 625 ordinary hosts, read for memory, ns/message", "BenchmarkReadFleet/ordinary", "ns/message",
			none},
		{"  ordinary hosts, ratio to a no-op consumer", "BenchmarkReadFleet/ordinary", "ratio", atLeast(0.8)},
		{"  hosts with equally many batches of each kind, ratio to a no-op consumer", "BenchmarkReadFleet/even",
			"ratio", atLeast(0.8)},
	}},
	{"./cmd/gputap", []figure{
		{"call → folded, 1,000 calls/s, default settings, p50 ms", "BenchmarkCallToFold", "p50-ms", none},
		{"call → folded, 1,000 calls/s, default settings, p99 ms", "BenchmarkCallToFold", "p99-ms", atMost(250)},
	}},
	{"./consumer/leak", []figure{
		{"fold leak, decode included, M events/s", "BenchmarkApply/one_context", "events/s", atLeast(10)},
		{"  a thousand hosts in turn, batches of 320 events, ns/event", "BenchmarkApplyFleet/320_events", "ns/event",
			none},
		{"leak state, B per live allocation", "BenchmarkLiveBytes/1.5M", "B/allocation", atMost(64)},
		{"checkpoint of leak state, B per live allocation", "BenchmarkSnapshot/Snapshot", "B/allocation", atMost(30)},
		{"checkpoint of 2 M live allocations, ms", "BenchmarkSnapshot/Snapshot", "ns/op", atMost(1000)},
		{"restore of 2 M live allocations, ms", "BenchmarkSnapshot/Restore", "ns/op", atMost(1000)},
		{"scrape with 1 M live allocations, worst ms", "BenchmarkReport1M/Collect", "worst-ms", atMost(10)},
		{"report rows with 1 M live allocations, worst ms", "BenchmarkReport1M/Top1000", "worst-ms", atMost(10)},
	}},
	{"./consumer/launch", []figure{
		{"fold launch, decode included, M events/s", "BenchmarkApply/one_GPU,_decode_included", "Mevents/s",
			atLeast(40)},
	}},
	{"./consumer/bandwidth", []figure{
		{"fold bandwidth, decode included, M events/s", "BenchmarkApply/one_GPU,_decode_included", "Mevents/s",
			atLeast(40)},
	}},
	{"./consumer/anomaly", []figure{
		{"fold anomaly, M events/s", "BenchmarkApply/ordinary", "events/s", atLeast(20)},
	}},
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
	for _, g := range figures {
		fmt.Fprintf(os.Stderr, "measuring %s\n", g.pkg)
		if err := measure(ctx, g.pkg, measured); err != nil {
			return fmt.Errorf("%s: %w", g.pkg, err)
		}
	}
	fmt.Println("| what | measured | budget | |\n| --- | ---: | ---: | --- |")
	for _, g := range figures {
		for _, f := range g.list {
			f.print(g.pkg, measured)
		}
	}
	return measureAgent(ctx)
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

func (f figure) print(pkg string, measured map[string]float64) {
	v, ok := measured[pkg+" "+f.benchmark+" "+f.unit]
	if !ok {
		fmt.Printf("| %s | not measured | | |\n", f.what)
		return
	}
	v *= cmp.Or(scales[f.unit], 1)
	budget, verdict := "", ""
	switch {
	case f.budget.atMost > 0:
		budget = fmt.Sprintf("≤ %g", f.budget.atMost)
		verdict = missed(v > f.budget.atMost)
	case f.budget.atLeast > 0:
		budget = fmt.Sprintf("≥ %g", f.budget.atLeast)
		verdict = missed(v < f.budget.atLeast)
	}
	fmt.Printf("| %s | %.4g | %s | %s |\n", f.what, v, budget, verdict)
}

func missed(b bool) string {
	if b {
		return "missed"
	}
	return "ok"
}
