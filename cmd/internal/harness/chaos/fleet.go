package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

const (
	nodes      = 3
	simulators = 2
	shardBytes = 256 << 20 // enough that no stream removes its first messages, which are compared
)

// fleet is everything that runs.
type fleet struct {
	*cluster.Workspace
	options
	random     *rand.Rand
	nodes      []*cluster.Process
	proxies    []*proxy
	consumers  []*cluster.Process
	simulators []*cluster.Process
	tmpfs      string // the last node's store; empty: this process may not mount one
	nc         *nats.Conn
	js         jetstream.JetStream
	did        map[string]int // disturbances by name
	kills      []kill         // of consumers
	commits    *commits
	damagedAt  []uint64 // by shard: sequence of its damaged batch

	stopWatching func() // nil before watchCommits
}

func newFleet(ctx context.Context, o options) (*fleet, error) {
	w, err := cluster.NewWorkspace("", "chaos", os.Stdout)
	if err != nil {
		return nil, err
	}
	f := &fleet{Workspace: w, options: o, random: rand.New(rand.NewPCG(o.seed, 1)), did: map[string]int{}}
	f.Say("seed %d: disturb for %s; %d hosts, %d events/s, %d shards, %d instances of each consumer; in %s",
		o.seed, o.duration, o.hosts, o.rate, o.shards, o.instances, w.Dir)
	if err := f.buildPrograms(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.Dir))
	}
	return f, nil
}

// firstProgram is the program that a process runs until it is upgraded.
func (f *fleet) firstProgram(name string) string {
	if f.from != "" {
		return f.Path("old/" + name)
	}
	return f.Program(name)
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
	err = cluster.InitStreams(ctx, f.firstProgram("gputap"), f.urls(), f.shards, nodes, int64(f.shards)*shardBytes)
	if err != nil {
		return err
	}
	if err := f.watchCommits(); err != nil {
		return err
	}
	for _, name := range fold.Names() {
		for i := range f.instances {
			p := &cluster.Process{Name: fmt.Sprintf("%s-%d", name, i), Dir: f.Dir, Args: []string{
				f.firstProgram("gputap-" + name), "--nats.url", f.urls(), "--metrics.addr", "",
				"--display-interval", "0",
				"--log.format", "text",
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
	if err := cluster.Until(ctx, time.Minute, f.allShardsOwned); err != nil {
		return err
	}
	return f.publishDamaged(ctx)
}

// clusterOf is the cluster of a simulator's hosts.
func clusterOf(simulator int) string { return fmt.Sprintf("sim%d", simulator) }

// startSimulators starts one simulator whose hosts publish everything, and others whose hosts withhold batches and
// whose producers restart.
func (f *fleet) startSimulators() error {
	recording := f.Path("recording")
	if err := writeRecording(recording); err != nil {
		return err
	}
	for i := range simulators {
		p := &cluster.Process{Name: fmt.Sprintf("simulate-%d", i), Dir: f.Dir, Args: []string{
			f.firstProgram("gputap"), "simulate", "--nats.url", f.urls(), "--cluster", clusterOf(i),
			"--hosts", strconv.Itoa((f.hosts + i) / simulators),
			"--events-per-second", strconv.Itoa(f.rate / simulators),
			"--seed", strconv.FormatUint(f.seed, 10), "--log", f.truthLog(i), "--resume",
			"--duration", "24h", "--drain", "90s", "--profile", recording,
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

// truthLog is where a simulator logs every batch before it publishes it.
func (f *fleet) truthLog(simulator int) string { return f.Path(fmt.Sprintf("truth-%d", simulator)) }

// urls are those of the proxies: everything but the nodes themselves connects through them.
func (f *fleet) urls() string {
	var list []string
	for _, p := range f.proxies {
		list = append(list, p.url())
	}
	return strings.Join(list, ",")
}

func (f *fleet) startCluster() error {
	list, err := cluster.Nodes(f.Dir, f.Program("nats-server"), nodes, "8GB")
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
		if f.keep { // unmounting deletes its files
			err := os.CopyFS(f.tmpfs+"-kept", os.DirFS(f.tmpfs))
			f.Say("the store of %s is copied to %s-kept, err %v", f.nodes[nodes-1].Name, f.tmpfs, err)
		}
		_ = syscall.Unmount(f.tmpfs, 0)
	}
	f.Close(f.keep)
}
