// Command scale measures how far gputap scales on one machine, with real processes: three nats-server nodes with three
// replicas of everything, simulated hosts, and consumer instances with a CPU each. It prints the tables of
// docs/measurements.
//
// The fill phase stores events as fast as possible. The backlog phase folds the stored events with some instances of a
// fold, and has no-op consumers read the same messages before and after, as a baseline. The live phase has the hosts
// publish at a fixed rate, in batches as small as producers make them, first without consumers and then with.
//
// The flag -host-events measures one real host instead, on one shard: a producer that reads a full ring until the last
// batch is acked, and in turn raw publishers of the same bytes on the same CPUs and to the same node; then a fold and a
// no-op consumer. The producer is stopped (SIGSTOP) while a program calls the stub driver, so that the ring fills. All
// connect to the node that leads the stream, where a raw publisher is fastest.
//
// CPU times are those of whole processes, over the span of the counters that they are divided by.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// options of a run.
type options struct {
	bin           string
	dir           string
	shards        int
	events        float64
	fillRate      float64
	fillAge       time.Duration
	instances     []int
	liveRates     []float64
	liveSpan      time.Duration
	nodeCPUs      [][]int // of each node; nil: all
	nodeGOGC      int
	simulatorCPUs []int   // also of the producer and of raw publishers; nil: all
	instanceCPUs  [][]int // of the first instance, the second …; used in rotation
	hostEvents    float64
	hostLoads     []hostLoad
}

// children are the programs that scale starts of itself.
var children = map[string]func(context.Context, []string) error{"noop": noop, "publish": publish}

func main() {
	if len(os.Args) > 1 && children[os.Args[1]] != nil {
		cluster.Main(os.Args[1], func(ctx context.Context) error { return children[os.Args[1]](ctx, os.Args[2:]) })
		return
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	cluster.Main("scale", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) (o options, err error) {
	o.nodeCPUs, o.instanceCPUs = make([][]int, nodes), [][]int{{0}, {1}}
	o.liveRates, o.hostLoads = []float64{100e3}, []hostLoad{hostLoads["launch"]}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "", "directory of all programs; empty: build them")
	flags.StringVar(&o.dir, "dir", "",
		"parent directory of stores and logs: it selects the disk that is measured; empty: the temporary directory")
	flags.IntVar(&o.shards, "shards", 16, "number of shards")
	flags.Float64Var(&o.events, "events", 20e6, "events to store and then fold, at least 1e6")
	flags.Float64Var(&o.fillRate, "fill-rate", 50e6,
		"events per second that the hosts offer; with -fill-age it determines the size of batches")
	flags.DurationVar(&o.fillAge, "fill-age", time.Second, "age of the batches of the fill phase")
	listVar(flags, &o.instances, "instances",
		"numbers of instances of a fold, one after the other (default 1,2,4)", strconv.Atoi)
	listVar(flags, &o.liveRates, "live-rates",
		"events per second of the live phase, in batches of 50 ms, one rate after the other (default 100e3)", number)
	flags.DurationVar(&o.liveSpan, "live-span", 10*time.Second,
		"how long a live rate is measured, once without consumers and once with them")
	listVar(flags, &o.nodeCPUs, "node-cpus",
		"CPUs of each node, for example 0-1,2-3,4-5 (default: all nodes share all CPUs)", cpuRange)
	flags.IntVar(&o.nodeGOGC, "node-gogc", 100, "GOGC of each node")
	flags.Func("simulator-cpus", "CPUs of the simulator, or of the producer, for example 6-9 (default all)",
		func(text string) (err error) {
			o.simulatorCPUs, err = cpuRange(text)
			return err
		})
	listVar(flags, &o.instanceCPUs, "instance-cpus",
		"CPUs of the instances, in rotation: 10-13 gives each instance one CPU, 10-11,12-13 gives each two "+
			"(default 0-1)",
		cpuRange)
	flags.Float64Var(&o.hostEvents, "host-events", 0,
		"measure a real producer and raw publishers instead, with this many events of one shard; needs root")
	listVar(flags, &o.hostLoads, "host-calls", "calls to measure: launch, alloc (default launch)", loadOf)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if len(o.instanceCPUs) == 1 {
		o.instanceCPUs = slices.Collect(slices.Chunk(o.instanceCPUs[0], 1))
	}
	if o.instances == nil {
		for n := 1; n <= min(o.shards, 4); n *= 2 {
			o.instances = append(o.instances, n)
		}
	}
	return o, o.check()
}

func (o *options) check() error {
	switch {
	case len(o.nodeCPUs) != nodes:
		return fmt.Errorf("-node-cpus: use %d ranges, separated by commas", nodes)
	case slices.Min(o.instances) < 1 || slices.Max(o.instances) > o.shards:
		return errors.New("-instances: use numbers from 1 to the number of shards")
	case slices.Min(o.liveRates) < 1000 || o.liveSpan < time.Second:
		return errors.New("-live-rates must be at least 1000, -live-span at least 1s")
	case o.events < 1e6:
		return errors.New("-events must be at least 1e6")
	case o.hostEvents != 0 && (o.hostEvents < 1e6 || o.shards != 1):
		return errors.New("-host-events must be at least 1e6, with -shards 1, because a host publishes to one shard")
	}
	return nil
}

// listVar defines a flag whose value is a list, separated by commas.
func listVar[T any](flags *flag.FlagSet, to *[]T, name, usage string, parse func(string) (T, error)) {
	flags.Func(name, usage, func(text string) error {
		*to = nil
		for item := range strings.SplitSeq(text, ",") {
			v, err := parse(item)
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	})
}

func number(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

// cpuRange parses "6-9" or "6".
func cpuRange(text string) (cpus []int, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || from < 0 || to < from {
		return nil, fmt.Errorf("%q is not a CPU or a range of CPUs", text)
	}
	for cpu := from; cpu <= to; cpu++ {
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

func run(ctx context.Context, o options) error {
	w, err := cluster.NewWorkspace(o.dir, "scale", os.Stderr)
	if err != nil {
		return err
	}
	b := &bench{Workspace: w, options: o}
	err = b.measure(ctx)
	b.Close(err != nil && ctx.Err() == nil)
	return err
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.startNodes(ctx); err != nil {
		return err
	}
	b.printSetup()
	if b.hostEvents > 0 {
		for _, load := range b.hostLoads {
			if err := b.host(ctx, load); err != nil {
				return err
			}
		}
		return nil
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	for _, fold := range folds {
		if err := b.backlogs(ctx, fold, b.instances); err != nil {
			return err
		}
	}
	for _, rate := range b.liveRates {
		if err := b.live(ctx, rate); err != nil {
			return err
		}
	}
	return nil
}
