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

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
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
	instanceCPUs  [][]int // of the first instance, the second …; used in rotation
	hostEvents    float64
	fillRate      float64
	fillAge       time.Duration
	hostLoads     []hostLoad
	hostCPUs      []int
	stubs         string // directory of the stub driver and its workload
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "noop":
			cluster.Main("scale noop", func(ctx context.Context) error { return noop(ctx, os.Args[2:]) })
			return
		case "publish":
			cluster.Main("scale publish", func(ctx context.Context) error { return publish(ctx, os.Args[2:]) })
			return
		}
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	cluster.Main("scale", func(ctx context.Context) error { return run(ctx, o) })
}

func parse(args []string) (o options, err error) {
	var folds, instances, rates, nodeCPUs, simulatorCPUs, instanceCPUs, hostCalls, hostCPUs string
	flags := flag.NewFlagSet("scale", flag.ExitOnError)
	flags.StringVar(&o.bin, "bin", "",
		"directory of nats-server, gputap, gputap-<fold> and what -host-events needs; empty: build them")
	flags.StringVar(&o.dir, "dir", "",
		"parent directory of stores and logs: it selects the disk that is measured; empty: the temporary directory")
	flags.StringVar(&o.out, "o", "", "write the figures to this file as JSON")
	flags.BoolVar(&o.keep, "keep", false, "keep stores and logs")
	flags.IntVar(&o.shards, "shards", 16, "number of shards")
	flags.IntVar(&o.hosts, "hosts", 1000, "number of simulated hosts")
	flags.Float64Var(&o.events, "events", 20e6, "events to store and then fold")
	flags.Float64Var(&o.fillRate, "fill-rate", 50e6,
		"events per second that the hosts offer; with -fill-age it determines the size of batches")
	flags.DurationVar(&o.fillAge, "fill-age", time.Second, "age of the batches of the fill phase")
	flags.StringVar(&folds, "folds", "leak,launch", "folds to measure")
	flags.StringVar(&instances, "instances", "",
		"numbers of instances of a fold, one after the other, for example 1,2,4 (the default)")
	flags.StringVar(&rates, "live-rates", "100e3",
		"events per second of the live phase, in batches of 50 ms, one rate after the other")
	flags.DurationVar(&o.liveSpan, "live-span", 10*time.Second,
		"how long a live rate is measured, once without consumers and once with them")
	flags.StringVar(&nodeCPUs, "node-cpus", "",
		"CPUs of each node, for example 0-1,2-3,4-5; empty: all nodes share all CPUs")
	flags.IntVar(&o.nodeGOGC, "node-gogc", 100, "GOGC of each node")
	flags.StringVar(&simulatorCPUs, "simulator-cpus", "", "CPUs of the simulator, for example 6-9; empty: all")
	flags.StringVar(&instanceCPUs, "instance-cpus", "0-1",
		"CPUs of the instances, in rotation: 10-13 gives each instance one CPU, 10-11,12-13 gives each two")
	flags.Float64Var(&o.hostEvents, "host-events", 0,
		"measure a real producer and raw publishers instead, with this many events of one shard; needs root")
	flags.StringVar(&hostCalls, "host-calls", "launch", "calls to measure, one after the other: launch, alloc")
	flags.StringVar(&hostCPUs, "host-cpus", "",
		"CPUs of the producer and of raw publishers, for example 6; empty: the first of the simulator's")
	_ = flags.Parse(args) // exits on errors
	if o.simulatorCPUs, err = cpuRange(simulatorCPUs); err != nil {
		return o, fmt.Errorf("-simulator-cpus: %w", err)
	}
	if o.instanceCPUs, err = cpusEach(instanceCPUs); err != nil {
		return o, fmt.Errorf("-instance-cpus: %w", err)
	}
	if len(o.instanceCPUs) == 0 {
		return o, errors.New("-instance-cpus: empty; use a range such as 10-13")
	}
	if o.nodeGOGC < 1 {
		return o, fmt.Errorf("-node-gogc %d: use 1 or more", o.nodeGOGC)
	}
	ranges := strings.Split(nodeCPUs, ",")
	if nodeCPUs != "" && len(ranges) != nodes {
		return o, fmt.Errorf("-node-cpus %q: use %d ranges, separated by commas", nodeCPUs, nodes)
	}
	for i := 0; nodeCPUs != "" && i < nodes; i++ {
		if o.nodeCPUs[i], err = cpuRange(ranges[i]); err != nil {
			return o, fmt.Errorf("-node-cpus: %w", err)
		}
	}
	o.folds = strings.Split(folds, ",")
	for _, name := range o.folds {
		if fold.ByName(name) == nil {
			return o, fmt.Errorf("-folds: unknown fold %q; use %s", name, strings.Join(fold.Names(), ", "))
		}
	}
	if o.instances, err = numbers(instances, o.shards); err != nil {
		return o, fmt.Errorf("-instances: %w", err)
	}
	for _, text := range strings.Split(rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate >= 1000) {
			return o, fmt.Errorf("-live-rates %q: use numbers from 1000", rates)
		}
		o.liveRates = append(o.liveRates, rate)
	}
	if !(o.fillRate >= 1000) || o.fillAge < time.Millisecond {
		return o, errors.New("-fill-rate must be at least 1000, -fill-age at least 1ms")
	}
	if o.shards < 1 || o.hosts < 1 || !(o.events >= 1e6) || o.liveSpan < time.Second {
		return o, errors.New("-events must be at least 1e6, -live-span at least 1s, -shards and -hosts at least 1")
	}
	return o, o.parseHost(hostCalls, hostCPUs)
}

func (o *options) parseHost(calls, cpus string) (err error) {
	if o.hostEvents == 0 {
		return nil
	}
	if !(o.hostEvents >= 1e6) || o.shards != 1 {
		return errors.New("-host-events must be at least 1e6, with -shards 1, because a host publishes to one shard")
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
			return fmt.Errorf("-host-calls: unknown call %q; use launch or alloc", function)
		}
		o.hostLoads = append(o.hostLoads, hostLoads[i])
	}
	return nil
}

// numbers parses a list of numbers from 1 to most. The default is 1, 2 and 4, up to most.
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
			return nil, fmt.Errorf("%q: use numbers from 1 to the number of shards", text)
		}
		list = append(list, n)
	}
	return list, nil
}

// cpuRange parses "6-9" or "6".
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
		return nil, fmt.Errorf("%q is not a CPU or a range of CPUs", text)
	}
	for cpu := from; cpu <= to; cpu++ {
		cpus = append(cpus, cpu)
	}
	return cpus, nil
}

// cpusEach parses "10-13" as one CPU for each instance, and "10-11,12-13" as two for each.
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

const mostCPUs = 1024 // of a CPU set of Linux

func run(ctx context.Context, o options) error {
	b, err := newBench(ctx, o)
	if b != nil {
		defer b.close()
	}
	if err != nil {
		return err
	}
	return errors.Join(b.measure(ctx), b.report()) // also prints the figures from before an error
}

func (b *bench) measure(ctx context.Context) error {
	if b.hostEvents > 0 {
		return b.measureHost(ctx)
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	for _, name := range b.folds {
		if err := b.backlogs(ctx, name, b.instances, &b.result.folded); err != nil {
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
