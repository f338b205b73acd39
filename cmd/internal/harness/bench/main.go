// Command bench runs the benchmarks of the tree and prints the budgets they stand for in one table, and what
// the host agent costs under steady loads in another, which `bench agent` prints alone. Ratios compare within one run. Needs root: probes are attached.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// figure is one row: a metric of a benchmark, and what it must not exceed or fall below.
type figure struct {
	what      string
	pkg       string
	benchmark string // its name without the CPU suffix
	unit      string
	scale     float64 // 0: 1
	atMost    float64 // 0: no such budget
	atLeast   float64
}

const million = 1e-6

var figures = []figure{
	{"traced call, 1 thread: entry record / empty entry", "./bpf", "BenchmarkTracedCall/threads=1", "entry-ratio", 0, 1.3, 0},
	{"traced call, 1 thread: copy record / empty pair", "./bpf", "BenchmarkTracedCall/threads=1", "pair-ratio", 0, 1.35, 0},
	{"traced call, 1 thread: memory record / empty pair", "./bpf", "BenchmarkTracedCall/threads=1", "memory-ratio", 0, 1.35, 0},
	{"  empty entry, ns", "./bpf", "BenchmarkTracedCall/threads=1", "entry-empty-ns", 0, 0, 0},
	{"  empty pair, ns", "./bpf", "BenchmarkTracedCall/threads=1", "pair-empty-ns", 0, 0, 0},
	{"traced call, every CPU: entry record / empty entry", "./bpf", "BenchmarkTracedCall/all", "entry-ratio", 0, 1.5, 0},
	{"traced call, every CPU: copy record / empty pair", "./bpf", "BenchmarkTracedCall/all", "pair-ratio", 0, 1.5, 0},
	{"traced call, every CPU: memory record / empty pair", "./bpf", "BenchmarkTracedCall/all", "memory-ratio", 0, 1.5, 0},
	{"ring → encoded batch, launches, ns/event", "./producer", "BenchmarkRingToBatch/launch", "ns/event", 0, 200, 0},
	{"ring → encoded batch, memory, ns/event", "./producer", "BenchmarkRingToBatch/alloc", "ns/event", 0, 200, 0},
	{"ring → encoded batch, copies, ns/event", "./producer", "BenchmarkRingToBatch/copy", "ns/event", 0, 200, 0},
	{"ring → JetStream ack, M events/s", "./producer", "BenchmarkRingToAck", "Mevents/s", 0, 0, 4},
	{"  raw publishes of the same bytes, M events/s", "./producer", "BenchmarkRingToAck", "raw-Mevents/s", 0, 0, 0},
	{"  ratio of both", "./producer", "BenchmarkRingToAck", "ratio", 0, 0, 0.8},
	{"  against making the batches and not publishing them", "./producer", "BenchmarkRingToAck", "made-ratio", 0, 0, 0},
	{"encode, memory, ns/event", "./schema", "BenchmarkEncode/memory", "ns/event", 0, 0, 0},
	{"  msgpack rows by reflection, ns/event", "./schema", "BenchmarkEncode/memory/rows", "ns/event", 0, 0, 0},
	{"decode, memory, ns/event", "./schema", "BenchmarkDecode/memory", "ns/event", 0, 0, 0},
	{"  msgpack rows by reflection, ns/event", "./schema", "BenchmarkDecode/memory/rows", "ns/event", 0, 0, 0},
	{"wire, memory of the recorded PyTorch run, B/event", "./schema", "BenchmarkRecordedRun", "memory-B/event", 0, 22, 0},
	{"wire, launches of the recorded PyTorch run, B/event", "./schema", "BenchmarkRecordedRun", "launch-B/event", 0, 16, 0},
	{"  decode of its launches, every column, ns/event", "./schema", "BenchmarkRecordedRun", "launch-decode-ns/event", 0, 0, 0},
	{"stored batch → applied, M events/s", "./consumer", "BenchmarkReadStream", "Mevents/s", 0, 0, 0},
	{"  an ordered consumer that does nothing, M events/s", "./consumer", "BenchmarkReadStream", "raw-Mevents/s", 0, 0, 0},
	{"  ratio of both", "./consumer", "BenchmarkReadStream", "ratio", 0, 0, 0.8},
	{"publish one batch → applied, ms", "./consumer", "BenchmarkPublishToApply", "ns/op", million, 0, 0},
	{"call → folded, 1,000 calls/s, default settings, p50 ms", "./cmd/gputap", "BenchmarkCallToFold", "p50-ms", 0, 0, 0},
	{"call → folded, 1,000 calls/s, default settings, p99 ms", "./cmd/gputap", "BenchmarkCallToFold", "p99-ms", 0, 250, 0},
	{"fold leak, decode included, M events/s", "./consumer/leak", "BenchmarkApply/one_context", "events/s", million, 0, 3},
	{"  of a thousand hosts in turn, batches of 320 events, ns/event", "./consumer/leak", "BenchmarkApplyFleet/320_events", "ns/event", 0, 0, 0},
	{"fold launch, decode included, M events/s", "./consumer/launch", "BenchmarkApply/one_GPU,_decode_included", "Mevents/s", 0, 0, 10},
	{"fold bandwidth, decode included, M events/s", "./consumer/bandwidth", "BenchmarkApply/one_GPU,_decode_included", "Mevents/s", 0, 0, 10},
	{"fold anomaly, M events/s", "./consumer/anomaly", "BenchmarkApply/ordinary", "events/s", million, 0, 2},
	{"a shard of 625 ordinary hosts, read for memory, ns/message", "./consumer", "BenchmarkReadFleet/ordinary", "ns/message", 0, 0, 0},
	{"  against a JetStream consumer that does nothing", "./consumer", "BenchmarkReadFleet/ordinary", "ratio", 0, 0, 0.8},
	{"  where each kind has as many batches, heartbeats too", "./consumer", "BenchmarkReadFleet/even", "ratio", 0, 0, 0.8},
	{"leak state, B per live allocation", "./consumer/leak", "BenchmarkLiveBytes/1.5M", "B/allocation", 0, 64, 0},
	{"saved leak state, B per live allocation", "./consumer/leak", "BenchmarkSnapshot/Snapshot", "B/allocation", 0, 30, 0},
	{"2 M live allocations saved, ms", "./consumer/leak", "BenchmarkSnapshot/Snapshot", "ns/op", million, 1000, 0},
	{"2 M live allocations restored, ms", "./consumer/leak", "BenchmarkSnapshot/Restore", "ns/op", million, 1000, 0},
	{"scrape with 1 M live allocations, worst ms", "./consumer/leak", "BenchmarkReport1M/Collect", "worst-ms", 0, 10, 0},
	{"report rows with 1 M live allocations, worst ms", "./consumer/leak", "BenchmarkReport1M/Top1000", "worst-ms", 0, 10, 0},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "agent" { // that part alone
		measureAgentOrExit()
		return
	}
	measured := map[string]float64{}
	for _, pkg := range []string{"./bpf", "./producer", "./schema", "./consumer", "./consumer/leak", "./consumer/launch", "./consumer/bandwidth", "./consumer/anomaly", "./cmd/gputap"} {
		fmt.Fprintf(os.Stderr, "measuring %s\n", pkg)
		if err := measure(pkg, measured); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", pkg, err)
			os.Exit(1)
		}
	}
	fmt.Println("| what | measured | budget | |\n| --- | ---: | ---: | --- |")
	for _, f := range figures {
		f.print(measured)
	}
	measureAgentOrExit()
}

func measureAgentOrExit() {
	if err := measureAgent(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: host agent: %v\n", err)
		os.Exit(1)
	}
}

// measure runs one package's benchmarks and notes "pkg benchmark unit".
func measure(pkg string, to map[string]float64) error {
	args := []string{"test", "-tags", "bpf", "-run", "^$", "-bench", ".", "-count", "1", pkg}
	switch pkg {
	case "./bpf", "./cmd/gputap":
		args = append(args, "-benchtime", "1x") // it repeats and takes medians by itself
	case "./producer":
		args = append(args, "-benchtime", "5x")
	default:
		args = append(args, "-benchtime", "1s")
	}
	cmd := exec.Command("go", args...)
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
