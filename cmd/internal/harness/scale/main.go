package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	bin           string
	dir           string
	out           string
	keep          bool
	shards        int
	hosts         int
	events        float64
	folds         []string
	instances     []int
	liveRates     []float64
	liveSpan      time.Duration
	nodeCPUs      [nodes][]int
	nodeGOGC      int
	simulatorCPUs []int
	instanceCPUs  [][]int // of the first instance, of the second, and then again
	hostEvents    float64
	fillRate      float64
	fillAge       time.Duration
	hostLoads     []hostLoad
	hostCPUs      []int
	stubs         string // where the stub driver and its workload are
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "raw":
			exit(raw(os.Args[2:]))
			return
		case "publish":
			exit(publish(os.Args[2:]))
			return
		}
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	exit(run(ctx, o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	var folds, instances, rates, nodeCPUs, simulatorCPUs, instanceCPUs, hostCalls, hostCPUs string
	flags := flag.NewFlagSet("scale", flag.ExitOnError)
	flags.StringVar(&o.bin, "bin", "", "directory with nats-server, gputap, gputap-<fold> and what -host-events needs; none: they are built")
	flags.StringVar(&o.dir, "dir", "", "directory for stores and logs, which decides what disk is measured; none: a temporary one")
	flags.StringVar(&o.out, "o", "", "file that gets the figures as JSON")
	flags.BoolVar(&o.keep, "keep", false, "keep stores and logs")
	flags.IntVar(&o.shards, "shards", 16, "shards")
	flags.IntVar(&o.hosts, "hosts", 1000, "simulated hosts")
	flags.Float64Var(&o.events, "events", 20e6, "events that are stored, and then folded")
	flags.Float64Var(&o.fillRate, "fill-rate", 50e6, "events a second that the hosts would store: with -fill-age it says how large batches are. 50e6 is more than is reached")
	flags.DurationVar(&o.fillAge, "fill-age", time.Second, "age of their batches")
	flags.StringVar(&folds, "folds", "leak,launch", "folds")
	flags.StringVar(&instances, "instances", "", "how many instances of a fold, in turn, as 1,2,4; none: those, up to the shards")
	flags.StringVar(&rates, "live-rates", "100e3", "events a second in batches of 50 ms, one rate after the other")
	flags.DurationVar(&o.liveSpan, "live-span", 10*time.Second, "how long that is measured, once without consumers and once with")
	flags.StringVar(&nodeCPUs, "node-cpus", "", "CPUs of each node, as 0-1,2-3,4-5; none: all share all")
	flags.IntVar(&o.nodeGOGC, "node-gogc", 100, "GOGC of each node: by how many percent its memory grows until Go collects it")
	flags.StringVar(&simulatorCPUs, "simulator-cpus", "", "CPUs of the simulator, as 6-9; none: all")
	flags.StringVar(&instanceCPUs, "instance-cpus", "0-1", "CPUs of the instances, as 10-13: each gets one, and then the first again; as 10-11,12-13: each gets as many")
	flags.Float64Var(&o.hostEvents, "host-events", 0, "measure a real producer and raw publishers instead, with so many events of one shard; as root")
	flags.StringVar(&hostCalls, "host-calls", "launch", "what a program calls, one after the other: launch, alloc")
	flags.StringVar(&hostCPUs, "host-cpus", "", "CPUs of the producer or of a raw publisher, as 6; none: the first of the simulator's")
	_ = flags.Parse(args) // it exits
	if o.simulatorCPUs, err = cpuRange(simulatorCPUs); err != nil {
		return o, fmt.Errorf("-simulator-cpus: %w", err)
	}
	if o.instanceCPUs, err = cpusEach(instanceCPUs); err != nil {
		return o, fmt.Errorf("-instance-cpus: %w", err)
	}
	if len(o.instanceCPUs) == 0 {
		return o, errors.New("-instance-cpus: empty: a range as 10-13")
	}
	if o.nodeGOGC < 1 {
		return o, errors.New("-node-gogc from 1")
	}
	ranges := strings.Split(nodeCPUs, ",")
	if nodeCPUs != "" && len(ranges) != nodes {
		return o, fmt.Errorf("-node-cpus %q: %d ranges, separated by commas", nodeCPUs, nodes)
	}
	for i := 0; nodeCPUs != "" && i < nodes; i++ {
		if o.nodeCPUs[i], err = cpuRange(ranges[i]); err != nil {
			return o, fmt.Errorf("-node-cpus: %w", err)
		}
	}
	o.folds = strings.Split(folds, ",")
	for _, name := range o.folds {
		if kinds[name] == nil {
			return o, fmt.Errorf("-folds: there is no fold %q", name)
		}
	}
	if o.instances, err = numbers(instances, o.shards); err != nil {
		return o, fmt.Errorf("-instances: %w", err)
	}
	for _, text := range strings.Split(rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate >= 1000) {
			return o, fmt.Errorf("-live-rates %q: numbers from 1000", rates)
		}
		o.liveRates = append(o.liveRates, rate)
	}
	if !(o.fillRate >= 1000) || o.fillAge < time.Millisecond {
		return o, errors.New("-fill-rate from 1000, -fill-age from 1ms")
	}
	if o.shards < 1 || o.hosts < 1 || !(o.events >= 1e6) || o.liveSpan < time.Second {
		return o, errors.New("-events from 1e6, -live-span from 1s, -shards and -hosts from 1")
	}
	return o, o.parseHost(hostCalls, hostCPUs)
}

func (o *options) parseHost(calls, cpus string) (err error) {
	if o.hostEvents == 0 {
		return nil
	}
	if !(o.hostEvents >= 1e6) || o.shards != 1 {
		return errors.New("-host-events: from 1e6, with -shards 1: a host publishes to one")
	}
	if o.stubs = o.bin; o.bin == "" {
		o.stubs = "bin" // of the tree
	}
	if o.hostCPUs, err = cpuRange(cpus); err != nil {
		return fmt.Errorf("-host-cpus: %w", err)
	}
	if cpus == "" && len(o.simulatorCPUs) > 0 {
		o.hostCPUs = o.simulatorCPUs[:1]
	}
	for _, function := range strings.Split(calls, ",") {
		i := slices.IndexFunc(hostLoads, func(l hostLoad) bool { return l.function == function })
		if i < 0 {
			return fmt.Errorf("-host-calls: there is no %q: launch, alloc", function)
		}
		o.hostLoads = append(o.hostLoads, hostLoads[i])
	}
	return nil
}

// numbers are from 1 to most; of "": 1, 2 and 4, up to most.
func numbers(text string, most int) (list []int, err error) {
	for n := 1; text == "" && n <= min(most, 4); n *= 2 {
		list = append(list, n)
	}
	if text == "" {
		return list, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("%q: numbers from 1 to the number of shards", text)
		}
		list = append(list, n)
	}
	return list, nil
}

// cpuRange reads "6-9" or "6".
func cpuRange(text string) (cpus []int, err error) {
	if text == "" {
		return nil, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || from < 0 || to < from || to >= mostCPUs {
		return nil, fmt.Errorf("%q is no CPU and no range of CPUs", text)
	}
	for cpu := from; cpu <= to; cpu++ {
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

// cpusEach reads "10-13" as one CPU each, and "10-11,12-13" as two each.
func cpusEach(text string) (each [][]int, err error) {
	ranges := strings.Split(text, ",")
	for _, text := range ranges {
		cpus, err := cpuRange(text)
		if err != nil {
			return nil, err
		}
		if len(ranges) > 1 {
			if len(cpus) == 0 {
				return nil, errors.New("a range is empty")
			}
			each = append(each, cpus)
			continue
		}
		for _, cpu := range cpus {
			each = append(each, []int{cpu})
		}
	}
	return each, nil
}

const mostCPUs = 1024 // of Linux's sets

func run(ctx context.Context, o options) error {
	b, err := newBench(ctx, o)
	if b != nil {
		defer b.close()
	}
	if err != nil {
		return err
	}
	return errors.Join(b.measure(ctx), b.report()) // what was measured is worth its time, whatever came then
}

func (b *bench) measure(ctx context.Context) error {
	if b.hostEvents > 0 {
		return b.measureHost(ctx)
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	for _, fold := range b.folds {
		if err := b.backlogs(ctx, fold, b.instances, &b.result.folded); err != nil {
			return err
		}
	}
	for _, rate := range b.liveRates {
		r := &liveResult{}
		err := b.live(ctx, rate, r)
		b.result.Live = append(b.result.Live, *r)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureHost(ctx context.Context) error {
	for _, load := range b.hostLoads {
		r := &hostResult{Function: load.function, CPUs: b.hostCPUs}
		err := b.host(ctx, load, r)
		r.conclude()
		b.result.Host = append(b.result.Host, *r)
		if err != nil {
			return err
		}
	}
	return nil
}
