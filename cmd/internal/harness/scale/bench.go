package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

const nodes = 3

// kinds are what each fold reads, heartbeats besides.
var kinds = map[string][]schema.Kind{
	"leak":      (*leak.Tracker)(nil).Kinds(),
	"launch":    (*launch.Histogram)(nil).Kinds(),
	"bandwidth": (*bandwidth.Meter)(nil).Kinds(),
	"anomaly":   (*anomaly.Detector)(nil).Kinds(),
}

// bench is one run: what is started, and what was found out.
type bench struct {
	options
	nodes   []*cluster.Node
	others  []*cluster.Process
	nc      *nats.Conn
	js      jetstream.JetStream
	streams []jetstream.Stream // of the shards
	began   time.Time
	result  result
}

func newBench(ctx context.Context, o options) (*bench, error) {
	if o.hostEvents > 0 {
		if err := o.hostPrograms(); err != nil {
			return nil, err
		}
	}
	b := &bench{options: o, began: time.Now()}
	var err error
	if o.dir == "" {
		o.dir = os.TempDir()
	}
	if b.dir, err = os.MkdirTemp(o.dir, "gputap-scale-"); err != nil {
		return nil, err
	}
	if b.bin == "" {
		b.bin = filepath.Join(b.dir, "bin")
		packages := []string{"github.com/nats-io/nats-server/v2", "./cmd/gputap"}
		for _, fold := range o.folds {
			packages = append(packages, "./cmd/gputap-"+fold)
		}
		for _, load := range o.hostLoads {
			packages = append(packages, "./cmd/gputap-producer", "./cmd/gputap-"+load.fold)
		}
		if err := cluster.Build(ctx, ".", b.bin, packages...); err != nil {
			return b, err
		}
	}
	b.result.setup(&b.options)
	// Room for more than what is stored: events take some 15 bytes; in small batches more, which stay for a few spans.
	most := int64(max(o.events*60, 2*o.hostEvents*60, slices.Max(o.liveRates)*(10*o.liveSpan.Seconds()+100)*40)) + 4<<30
	if b.nodes, err = cluster.Nodes(b.dir, b.program("nats-server"), nodes, fmt.Sprint(2*most)); err != nil {
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
	if err := cluster.InitStreams(ctx, b.program("gputap"), b.urls(), o.shards, nodes, most); err != nil {
		return b, err
	}
	b.say("%d nodes with %d shards run, in %s", nodes, o.shards, b.dir)
	return b, b.lookUp(ctx)
}

// lookUp finds the streams of the shards, and who leads them.
func (b *bench) lookUp(ctx context.Context) error {
	leads := map[string]int{}
	for shard := range b.shards {
		var s jetstream.Stream
		if err := cluster.Until(ctx, time.Minute, func() (err error) {
			if s, err = b.js.Stream(ctx, schema.StreamName(shard)); err == nil && (s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "") {
				err = fmt.Errorf("stream of shard %d has no leader", shard)
			}
			return err
		}); err != nil {
			return err
		}
		b.streams = append(b.streams, s)
		leads[s.CachedInfo().Cluster.Leader]++
	}
	b.result.Leaders = leads
	return nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  "+format+"\n", append([]any{time.Since(b.began).Seconds()}, args...)...)
}

func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }

func (b *bench) urls() string {
	var list []string
	for _, n := range b.nodes {
		list = append(list, "nats://"+n.Addr)
	}
	return strings.Join(list, ",")
}

// start starts a process that close ends, if nothing else does.
func (b *bench) start(p *cluster.Process) error {
	p.Dir = b.dir
	b.others = append(b.others, p)
	return p.Start()
}

// stored is how many messages the shards have ever stored, and the oldest that each holds. A busy node may take long to say.
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

// purge empties the shards' streams, or what a fold has saved.
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
	if !b.keep {
		_ = os.RemoveAll(b.dir)
	}
}

// wait is false when ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkRunning says who has ended by itself.
func checkRunning(list ...*cluster.Process) error {
	for _, p := range list {
		if !p.Running() {
			return errors.Join(fmt.Errorf("%s has ended by itself: see its last lines:\n%s", p.Name, lastLines(p.Log())), p.Err())
		}
	}
	return nil
}

func lastLines(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-2000):])
}

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
