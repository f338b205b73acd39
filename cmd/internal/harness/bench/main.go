// Command bench measures the budgets and prints Markdown tables, one for each page of docs/measurements that shows it.
// `bench Folds` prints only the table of that title, `bench agent` only those of the host agent. It needs root, because
// it attaches probes. A ratio compares values of one run.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/table"
)

// figure is one row of a table: a measured value and its budget.
type figure struct {
	what   string
	unit   string
	source string // of a benchmark: its package, its name without "Benchmark" and the CPUs, and its metric
	budget budget
}

// budget limits a figure.
type budget struct {
	bound string // "≤", "≥" or, without a budget, ""
	value float64
}

var none budget

func (b budget) String() string {
	if b == none {
		return ""
	}
	return fmt.Sprint(b.bound, " ", b.value)
}

func atMost(v float64) budget  { return budget{"≤", v} }
func atLeast(v float64) budget { return budget{"≥", v} }

// section is one table.
type section struct {
	title   string
	figures []figure
}

const events = "M events/s"

var sections = []section{
	{"Capture", []figure{
		{"1 thread: entry record / empty entry", "ratio", "bpf TracedCall/threads=1 entry-ratio", atMost(1.45)},
		{"1 thread: copy record / empty pair", "ratio", "bpf TracedCall/threads=1 pair-ratio", atMost(1.35)},
		{"1 thread: memory record / empty pair", "ratio", "bpf TracedCall/threads=1 memory-ratio", atMost(1.35)},
		{"1 thread: empty entry", "ns", "bpf TracedCall/threads=1 entry-empty-ns", none},
		{"1 thread: empty pair", "ns", "bpf TracedCall/threads=1 pair-empty-ns", none},
		{"every CPU: entry record / empty entry", "ratio", "bpf TracedCall/all entry-ratio", atMost(1.5)},
		{"every CPU: copy record / empty pair", "ratio", "bpf TracedCall/all pair-ratio", atMost(1.5)},
		{"every CPU: memory record / empty pair", "ratio", "bpf TracedCall/all memory-ratio", atMost(1.5)},
	}},
	{"Ring to ack", []figure{
		{"ring → encoded batch, launches", events, "producer RingToBatch/launch ns/event", atLeast(5)},
		{"ring → encoded batch, memory", events, "producer RingToBatch/alloc ns/event", atLeast(5)},
		{"ring → encoded batch, copies", events, "producer RingToBatch/copy ns/event", atLeast(5)},
		{"ring → JetStream ack, embedded", events, "producer RingToAck Mevents/s", atLeast(8)},
		{"raw publishes of the same bytes", events, "producer RingToAck raw-Mevents/s", none},
		{"ring → JetStream ack / raw publishes", "ratio", "producer RingToAck ratio", none},
		{"ring → JetStream ack / encoding without publishing", "ratio", "producer RingToAck made-ratio", none},
	}},
	{"Wire and codec", []figure{
		{"memory of the recorded PyTorch run", "B/event", "schema RecordedRun memory-B/event", atMost(22)},
		{"launches of the recorded PyTorch run", "B/event", "schema RecordedRun launch-B/event", atMost(16)},
		{"decode launches of the recorded run, all columns", "ns/event",
			"schema RecordedRun launch-decode-ns/event", none},
		{"encode memory", "ns/event", "schema Encode/memory ns/event", none},
		{"encode memory as msgpack rows with reflection", "ns/event", "schema Encode/memory/rows ns/event", none},
		{"decode memory", "ns/event", "schema Decode/memory ns/event", none},
		{"decode memory from msgpack rows with reflection", "ns/event", "schema Decode/memory/rows ns/event", none},
	}},
	{"Folds", []figure{
		{"leak, decode included", events, "consumer/leak Apply/one_context events/s", atLeast(10)},
		{"leak, a thousand hosts in turn, batches of 320 events", "ns/event",
			"consumer/leak ApplyFleet/320_events ns/event", none},
		{"launch, decode included", events, "consumer/launch Apply/one_GPU,_decode_included Mevents/s", atLeast(40)},
		{"bandwidth, decode included", events, "consumer/bandwidth Apply/one_GPU,_decode_included Mevents/s",
			atLeast(40)},
		{"anomaly, all rules on", events, "consumer/anomaly Apply/ordinary events/s", atLeast(20)},
		{"leak state of a live allocation", "B", "consumer/leak LiveBytes/1.5M B/allocation", atMost(64)},
		{"leak checkpoint of a live allocation", "B", "consumer/leak Snapshot/Snapshot B/allocation", atMost(30)},
		{"leak checkpoint of 2 M live allocations", "ms", "consumer/leak Snapshot/Snapshot ns/op", atMost(1000)},
		{"leak restore of 2 M live allocations", "ms", "consumer/leak Snapshot/Restore ns/op", atMost(1000)},
		{"scrape with 1 M live allocations, worst", "ms", "consumer/leak Report1M/Collect worst-ms", atMost(10)},
		{"report rows with 1 M live allocations, worst", "ms", "consumer/leak Report1M/Top1000 worst-ms", atMost(10)},
		{"call → folded, 1,000 calls/s, default settings, p50", "ms", "cmd/gputap CallToFold p50-ms", none},
		{"call → folded, 1,000 calls/s, default settings, p99", "ms", "cmd/gputap CallToFold p99-ms", atMost(250)},
		{"stored batch → applied", events, "consumer ReadStream Mevents/s", none},
		{"stored batch → an ordered no-op consumer", events, "consumer ReadStream raw-Mevents/s", none},
		{"stored batch → applied / no-op consumer", "ratio", "consumer ReadStream ratio", atLeast(0.8)},
		{"publish one batch → applied", "ms", "consumer PublishToApply ns/op", none},
		{"a shard of 625 ordinary hosts, read for memory", "ns/message",
			"consumer ReadFleet/ordinary ns/message", none},
		{"625 ordinary hosts / no-op consumer", "ratio", "consumer ReadFleet/ordinary ratio", atLeast(0.8)},
		{"625 hosts with as many batches of each kind / no-op consumer", "ratio", "consumer ReadFleet/even ratio",
			atLeast(0.8)},
	}},
}

func main() {
	cluster.Main("bench", func(ctx context.Context) error {
		wanted := strings.Join(os.Args[1:], " ") // a title has words
		switch at := slices.IndexFunc(sections, func(s section) bool { return s.title == wanted }); {
		case wanted == "agent":
			return measureAgent(ctx)
		case wanted == "":
			return errors.Join(measureSections(ctx, sections), measureAgent(ctx))
		case at < 0:
			return fmt.Errorf("no table %q: use agent, or a title such as Folds", wanted)
		default:
			return measureSections(ctx, sections[at:at+1])
		}
	})
}

func measureSections(ctx context.Context, sections []section) error {
	measured := map[string]float64{} // by source
	for _, s := range sections {
		for _, f := range s.figures {
			if _, ok := measured[f.source]; ok {
				continue
			}
			pkg, _, _ := strings.Cut(f.source, " ")
			fmt.Fprintln(os.Stderr, "measuring", pkg)
			if err := measure(ctx, pkg, measured); err != nil {
				return fmt.Errorf("%s: %w", pkg, err)
			}
			if _, ok := measured[f.source]; !ok {
				return fmt.Errorf("no benchmark printed %s", f.source)
			}
		}
	}
	fmt.Println(table.Machine())
	for _, s := range sections {
		head(s.title)
		for _, f := range s.figures {
			f.print(f.shown(measured[f.source]))
		}
	}
	return nil
}

// measure runs the benchmarks of one package.
func measure(ctx context.Context, pkg string, to map[string]float64) error {
	time := "1s"
	switch pkg {
	case "bpf", "cmd/gputap":
		time = "1x" // these benchmarks repeat and take medians themselves
	case "producer":
		time = "5x"
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-tags", "bpf", "-run", "^$", "-bench", ".", "-benchtime", time,
		"./"+pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, isBenchmark := strings.CutPrefix(lines.Text(), "Benchmark")
		fields := strings.Fields(name)
		if !isBenchmark || len(fields) < 4 {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				to[pkg+" "+cpuSuffix.ReplaceAllString(fields[0], "")+" "+fields[i+1]] = v
			}
		}
	}
	return nil
}

var cpuSuffix = regexp.MustCompile(`-\d+$`)

// shown converts a metric of a benchmark into the figure's unit.
func (f *figure) shown(v float64) float64 {
	metric := f.source[strings.LastIndexByte(f.source, ' ')+1:]
	switch {
	case metric == "ns/event" && f.unit == events:
		return 1000 / v
	case metric == "events/s" && f.unit == events, metric == "ns/op" && f.unit == "ms":
		return v / 1e6
	}
	return v
}

func head(title string) { table.Head(title, "what", "unit", "measured", "budget", "") }

// print prints the row with a measured value.
func (f *figure) print(v float64) {
	verdict := "ok"
	switch {
	case f.budget == none:
		verdict = ""
	case f.budget.bound == "≤" && v > f.budget.value, f.budget.bound == "≥" && v < f.budget.value:
		verdict = "missed"
	}
	measured := fmt.Sprintf("%.4g", v)
	if v >= 1e4 {
		measured = fmt.Sprintf("%.0f", v)
	}
	table.Row(f.what, f.unit, measured, f.budget.String(), verdict)
}
