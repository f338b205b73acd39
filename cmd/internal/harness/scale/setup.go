package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/table"
	"github.com/gputap/gputap/schema"
)

const (
	nodes = 3
	hosts = 1000 // simulated
)

var folds = []string{"leak", "launch"}

// bench is one run and its processes.
type bench struct {
	*cluster.Workspace
	options
	stubs   string // directory of the stub driver and its workload
	nodes   []*cluster.Node
	others  []*cluster.Process
	nc      *nats.Conn
	js      jetstream.JetStream
	streams []jetstream.Stream // of the shards
}

// startNodes starts the cluster, creates the streams and waits until each has a leader.
func (b *bench) startNodes(ctx context.Context) (err error) {
	if b.Bin, b.stubs = b.bin, b.bin; b.bin == "" {
		b.Bin, b.stubs = b.Path("bin"), "bin" // of the tree
		if err := cluster.Build(ctx, ".", b.Bin, "github.com/nats-io/nats-server/v2", "./cmd/gputap",
			"./cmd/gputap-leak", "./cmd/gputap-launch", "./cmd/gputap-producer"); err != nil {
			return err
		}
	}
	// More room than needed: an event takes some 15 bytes, or more in small batches, which are kept for a few spans.
	live := slices.Max(b.liveRates) * (10*b.liveSpan.Seconds() + 100) * 40
	most := int64(max(b.events*60, 2*b.hostEvents*60, live)) + 4<<30
	if b.nodes, err = cluster.Nodes(b.Dir, b.Program("nats-server"), nodes, fmt.Sprint(2*most)); err != nil {
		return err
	}
	for i, n := range b.nodes {
		n.CPUs, n.Env = b.nodeCPUs[i], []string{"GOGC=" + strconv.Itoa(b.nodeGOGC)}
		if err := n.Start(); err != nil {
			return err
		}
	}
	if b.nc, b.js, err = cluster.Connect(ctx, b.urls()); err != nil {
		return err
	}
	if err := cluster.InitStreams(ctx, b.Program("gputap"), b.urls(), b.shards, nodes, most); err != nil {
		return err
	}
	for shard := range b.shards {
		if err := cluster.Until(ctx, time.Minute, func() error {
			s, err := b.js.Stream(ctx, schema.StreamName(shard))
			if err != nil {
				return err
			}
			if c := s.CachedInfo().Cluster; c == nil || c.Leader == "" {
				return fmt.Errorf("stream of shard %d has no leader", shard)
			}
			b.streams = append(b.streams, s)
			return nil
		}); err != nil {
			return err
		}
	}
	b.Say("%d nodes with %d shards run in %s", nodes, b.shards, b.Dir)
	return nil
}

func (b *bench) urls() string { return cluster.URLs(b.nodes) }

// start starts a process. close kills it if it still runs then.
func (b *bench) start(p *cluster.Process) error {
	p.Dir = b.Dir
	b.others = append(b.others, p)
	return p.Start()
}

// wait waits until a process has ended with status 0.
func (b *bench) wait(ctx context.Context, p *cluster.Process) error {
	for p.Running() {
		if err := cluster.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %w: see %s", p.Name, err, p.Log())
	}
	return nil
}

func (b *bench) close(keep bool) {
	if b.nc != nil {
		b.nc.Close()
	}
	for _, p := range b.others {
		p.Kill()
	}
	for _, n := range b.nodes {
		n.Kill()
	}
	b.Close(keep)
}

// stored returns how many messages the shards have ever stored. A busy node may answer late.
func (b *bench) stored(ctx context.Context) (sum float64, err error) {
	for _, s := range b.streams {
		if err := cluster.Until(ctx, time.Minute, func() error {
			info, err := s.Info(ctx)
			if err == nil {
				sum += float64(info.State.LastSeq)
			}
			return err
		}); err != nil {
			return 0, fmt.Errorf("look at %s: %w", s.CachedInfo().Config.Name, err)
		}
	}
	return sum, nil
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

// printSetup describes this machine and how it is divided.
func (b *bench) printSetup() {
	fmt.Printf("%s; %d shards. CPUs of nodes %v with GOGC=%d, of simulator or producer %v, of instances in turn %v; "+
		"[] is all.\n", table.Machine(), b.shards, b.nodeCPUs, b.nodeGOGC, b.simulatorCPUs, b.instanceCPUs)
}
