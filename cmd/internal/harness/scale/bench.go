package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

const nodes = 3

// bench is one run: its processes and its result.
type bench struct {
	*cluster.Workspace
	options
	nodes   []*cluster.Node
	others  []*cluster.Process
	nc      *nats.Conn
	js      jetstream.JetStream
	streams []jetstream.Stream // of the shards
	result  result
}

func newBench(ctx context.Context, o options) (*bench, error) {
	if o.hostEvents > 0 {
		if err := o.checkHostPrograms(); err != nil {
			return nil, err
		}
	}
	w, err := cluster.NewWorkspace(o.dir, "scale", os.Stderr)
	if err != nil {
		return nil, err
	}
	b := &bench{Workspace: w, options: o}
	if b.bin != "" {
		b.Bin = b.bin
	} else {
		packages := []string{"github.com/nats-io/nats-server/v2", "./cmd/gputap"}
		for _, fold := range o.folds {
			packages = append(packages, "./cmd/gputap-"+fold)
		}
		for _, load := range o.hostLoads {
			packages = append(packages, "./cmd/gputap-producer", "./cmd/gputap-"+load.fold)
		}
		if err := cluster.Build(ctx, ".", b.Bin, packages...); err != nil {
			return b, err
		}
	}
	b.result.setup(&b.options)
	// More room than needed: an event takes some 15 bytes, or more in small batches, which are kept for a few spans.
	live := slices.Max(o.liveRates) * (10*o.liveSpan.Seconds() + 100) * 40
	most := int64(max(o.events*60, 2*o.hostEvents*60, live)) + 4<<30
	if b.nodes, err = cluster.Nodes(b.Dir, b.Program("nats-server"), nodes, fmt.Sprint(2*most)); err != nil {
		return b, err
	}
	for i, n := range b.nodes {
		n.CPUs, n.Env = o.nodeCPUs[i], []string{"GOGC=" + strconv.Itoa(o.nodeGOGC)}
		if err := n.Start(); err != nil {
			return b, err
		}
	}
	if b.nc, b.js, err = cluster.Connect(ctx, b.urls()); err != nil {
		return b, err
	}
	if err := cluster.InitStreams(ctx, b.Program("gputap"), b.urls(), o.shards, nodes, most); err != nil {
		return b, err
	}
	b.Say("%d nodes with %d shards run in %s", nodes, o.shards, b.Dir)
	return b, b.lookUpStreams(ctx)
}

// lookUpStreams finds the streams of the shards and counts how many each node leads.
func (b *bench) lookUpStreams(ctx context.Context) error {
	leads := map[string]int{}
	for shard := range b.shards {
		var s jetstream.Stream
		if err := cluster.Until(ctx, time.Minute, func() (err error) {
			if s, err = b.js.Stream(ctx, schema.StreamName(shard)); err != nil {
				return err
			}
			if c := s.CachedInfo().Cluster; c == nil || c.Leader == "" {
				return fmt.Errorf("stream of shard %d has no leader", shard)
			}
			return nil
		}); err != nil {
			return err
		}
		b.streams = append(b.streams, s)
		leads[s.CachedInfo().Cluster.Leader]++
	}
	b.result.Leaders = leads
	return nil
}

func (b *bench) urls() string { return cluster.URLs(b.nodes) }

// start starts a process. close kills it if it still runs then.
func (b *bench) start(p *cluster.Process) error {
	p.Dir = b.Dir
	b.others = append(b.others, p)
	return p.Start()
}

// stored returns how many messages the shards have ever stored, and the oldest sequence that each holds. A busy node
// may answer late.
func (b *bench) stored(ctx context.Context) (sum uint64, first []uint64, err error) {
	for _, s := range b.streams {
		var info *jetstream.StreamInfo
		if err := cluster.Until(ctx, time.Minute, func() (err error) {
			info, err = s.Info(ctx)
			return err
		}); err != nil {
			return 0, nil, fmt.Errorf("look at %s: %w", s.CachedInfo().Config.Name, err)
		}
		sum += info.State.LastSeq
		first = append(first, info.State.FirstSeq)
	}
	return sum, first, nil
}

// purge removes the checkpoints of folds, and with events also the messages of the shards.
func (b *bench) purge(ctx context.Context, events bool) error {
	state, err := b.js.Stream(ctx, schema.StateStream)
	if err != nil {
		return fmt.Errorf("look up %s: %w", schema.StateStream, err)
	}
	list := []jetstream.Stream{state}
	if events {
		list = append(list, b.streams...)
	}
	for _, s := range list {
		if err := s.Purge(ctx); err != nil {
			return fmt.Errorf("purge %s: %w", s.CachedInfo().Config.Name, err)
		}
	}
	return nil
}

func (b *bench) close() {
	if b.nc != nil {
		b.nc.Close()
	}
	for _, p := range b.others {
		p.Kill()
	}
	for _, n := range b.nodes {
		n.Kill()
	}
	b.Close(b.keep)
}

// machine describes this machine.
func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	model, cpus := "unknown CPU", 0
	for line := range strings.Lines(string(text)) {
		switch key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) {
		case "processor":
			cpus++
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d CPUs (%s), Linux %s, %s", cpus, model, strings.TrimSpace(string(release)), runtime.Version())
}
