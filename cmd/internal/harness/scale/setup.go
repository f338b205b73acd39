package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

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
	js      jetstream.JetStream
	streams []jetstream.Stream // of the shards
}

// startNodes starts the cluster, creates the streams and waits until each has a leader.
func (b *bench) startNodes(ctx context.Context) (err error) {
	b.stubs = "bin" // of the tree
	if b.bin != "" {
		b.Bin, b.stubs = b.bin, b.bin
	} else if err := cluster.Build(ctx, ".", b.Bin); err != nil {
		return err
	}
	// More room than needed: an event takes some 15 bytes, or more in small batches, which are kept for a few spans.
	live := slices.Max(b.liveRates) * (10*b.liveSpan.Seconds() + 100) * 40
	most := int64(max(b.events*60, 2*b.hostEvents*60, live)) + 4<<30
	if b.nodes, err = b.Nodes(nodes, fmt.Sprint(2*most)); err != nil {
		return err
	}
	for i, n := range b.nodes {
		n.CPUs, n.Env = b.nodeCPUs[i], []string{"GOGC=" + strconv.Itoa(b.nodeGOGC)}
	}
	if b.js, err = b.StartNodes(ctx, b.nodes, b.shards, most); err != nil {
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
