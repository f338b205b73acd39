package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

const (
	nodes      = 3
	shardBytes = 256 << 20 // no stream may let go of its beginning: it is compared
)

var consumers = []string{"leak", "launch", "bandwidth", "anomaly"}

// fleet is everything that runs.
type fleet struct {
	options
	dir        string
	random     *rand.Rand
	nodes      []*cluster.Process
	proxies    []*proxy
	consumers  []*cluster.Process
	simulators []*cluster.Process
	tmpfs      string // where the last node's store is, when this process may mount one
	nc         *nats.Conn
	js         jetstream.JetStream
	began      time.Time
	did        map[string]int
	kills      []kill // of consumers
	fence      *fence
	damagedAt  []uint64 // by shard: where its damaged batch is in its stream

	stopWatching func() // nil: it was not begun
}

func newFleet(ctx context.Context, o options) (*fleet, error) {
	dir, err := os.MkdirTemp("", "gputap-chaos-")
	if err != nil {
		return nil, err
	}
	f := &fleet{options: o, dir: dir, random: rand.New(rand.NewPCG(o.seed, 1)), did: map[string]int{}, began: time.Now()}
	f.say("seed %d, %s of trouble, %d hosts, %d events/s, %d shards, %d instances of each consumer, in %s", o.seed, o.duration, o.hosts, o.rate, o.shards, o.instances, dir)
	if err := f.build(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return f, nil
}

func (f *fleet) build(ctx context.Context) error {
	if err := build(ctx, ".", filepath.Join(f.dir, "bin")); err != nil || f.from == "" {
		return err
	}
	tree := filepath.Join(f.dir, "from")
	if out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, f.from).CombinedOutput(); err != nil {
		return fmt.Errorf("git worktree add %s: %w: %s", f.from, err, out)
	}
	defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() }()
	return build(ctx, tree, filepath.Join(f.dir, "old"))
}

// build makes the programs of the fleet from a tree.
func build(ctx context.Context, tree, to string) error {
	programs := []string{"github.com/nats-io/nats-server/v2", "./cmd/gputap"}
	for _, c := range consumers {
		programs = append(programs, "./cmd/gputap-"+c)
	}
	return cluster.Build(ctx, tree, to, programs...)
}

func (f *fleet) say(format string, args ...any) {
	fmt.Printf("%7.1fs  "+format+"\n", append([]any{time.Since(f.began).Seconds()}, args...)...)
}

func (f *fleet) program(name string) string { return filepath.Join(f.dir, "bin", name) }

// first is the program that a process is to run until it is upgraded.
func (f *fleet) first(name string) string {
	if f.from != "" {
		return filepath.Join(f.dir, "old", name)
	}
	return f.program(name)
}

// start brings up the cluster, the streams, the consumers and the hosts.
func (f *fleet) start(ctx context.Context) error {
	if err := f.startCluster(); err != nil {
		return err
	}
	var err error
	if f.nc, f.js, err = cluster.Connect(ctx, f.urls()); err != nil {
		return err
	}
	if err := cluster.InitStreams(ctx, f.first("gputap"), f.urls(), f.shards, nodes, int64(f.shards)*shardBytes); err != nil {
		return err
	}
	if err := f.watchManifests(); err != nil {
		return err
	}
	for _, c := range consumers {
		for i := range f.instances {
			p := &cluster.Process{Name: fmt.Sprintf("%s-%d", c, i), Dir: f.dir, Args: []string{
				f.first("gputap-" + c), "--nats.url", f.urls(), "--metrics.addr", "", "--display-interval", "0", "--log.format", "text",
			}}
			f.consumers = append(f.consumers, p)
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
	if err := f.startSimulators(); err != nil {
		return err
	}
	if err := cluster.Until(ctx, time.Minute, f.owned); err != nil {
		return err
	}
	return f.publishDamaged(ctx)
}

const simulators = 2

// clusterOf is the cluster of a simulator's hosts.
func clusterOf(simulator int) string { return fmt.Sprintf("sim%d", simulator) }

// startSimulators starts one whose hosts tell everything, and others whose hosts lose batches and whose producers start anew.
func (f *fleet) startSimulators() error {
	profile := filepath.Join(f.dir, "profile")
	if err := writeProfile(profile); err != nil {
		return err
	}
	for i := range simulators {
		name := fmt.Sprintf("simulate-%d", i)
		p := &cluster.Process{Name: name, Dir: f.dir, Args: []string{
			f.first("gputap"), "simulate", "--nats.url", f.urls(), "--cluster", clusterOf(i), "--hosts", strconv.Itoa((f.hosts + i) / simulators),
			"--events-per-second", strconv.Itoa(f.rate / simulators), "--seed", strconv.FormatUint(f.seed, 10), "--log", f.logOf(i), "--resume",
			"--duration", "24h", "--drain", "90s", "--profile", profile,
		}}
		if i > 0 {
			p.Args = append(p.Args, "--restart", "--lose", "0.02")
		}
		f.simulators = append(f.simulators, p)
		if err := p.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) logOf(simulator int) string {
	return filepath.Join(f.dir, fmt.Sprintf("truth-%d", simulator))
}

func (f *fleet) urls() string {
	var list []string
	for _, p := range f.proxies {
		list = append(list, p.url())
	}
	return strings.Join(list, ",")
}

func (f *fleet) startCluster() error {
	list, err := cluster.Nodes(f.dir, f.program("nats-server"), nodes, "8GB")
	if err != nil {
		return err
	}
	for i, n := range list {
		if i == nodes-1 && syscall.Mount("chaos", n.Store, "tmpfs", 0, "size="+f.disk) == nil {
			f.tmpfs = n.Store
		}
		f.nodes = append(f.nodes, &n.Process)
		if err := n.Start(); err != nil {
			return err
		}
		proxy, err := newProxy(n.Addr)
		if err != nil {
			return err
		}
		f.proxies = append(f.proxies, proxy)
	}
	return nil
}

func (f *fleet) close() {
	if f.stopWatching != nil {
		f.stopWatching()
	}
	if f.nc != nil {
		f.nc.Close()
	}
	for _, list := range [][]*cluster.Process{f.simulators, f.consumers, f.nodes} {
		for _, p := range list {
			p.Signal(syscall.SIGCONT)
			p.Kill()
		}
	}
	for _, p := range f.proxies {
		p.close()
	}
	if f.tmpfs != "" {
		if f.keep { // what is on it goes with it
			err := os.CopyFS(f.tmpfs+"-kept", os.DirFS(f.tmpfs))
			f.say("the store of %s is copied to %s-kept, err %v", f.nodes[nodes-1].Name, f.tmpfs, err)
		}
		_ = syscall.Unmount(f.tmpfs, 0)
	}
	if !f.keep {
		_ = os.RemoveAll(f.dir)
		return
	}
	fmt.Println("logs and stores are in", f.dir)
}
