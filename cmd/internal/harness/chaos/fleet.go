package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

const (
	nodes      = 3
	shards     = 16
	instances  = 3 // of each consumer
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
	js         jetstream.JetStream
	did        map[string]int // disturbances by name
	kills      []shardEvent   // of consumers
	commits    *commits
	damagedAt  [shards]uint64 // sequence of each shard's damaged batch
}

// build builds the programs of this tree, and of the revision that -from names.
func (f *fleet) build(ctx context.Context) error {
	if err := cluster.Build(ctx, ".", f.Bin); err != nil || f.from == "" {
		return err
	}
	if err := sameForms(ctx, ".", f.from); err != nil {
		return err
	}
	tree := f.Path("from")
	out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, f.from).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git worktree add %s: %w: %s", f.from, err, out)
	}
	defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() }()
	return cluster.Build(ctx, tree, f.Path("old"))
}

// sameForms returns an error unless a revision has the wire form and the snapshot forms of the source tree. The golden
// files of a form never change, so the tree may only have more of them.
func sameForms(ctx context.Context, tree, revision string) error {
	diff := exec.CommandContext(ctx, "git", "diff", "--no-renames", "--diff-filter=a", "--name-only", revision, "--",
		"*.golden")
	diff.Dir = tree
	out, err := diff.CombinedOutput()
	switch {
	case err != nil:
		return fmt.Errorf("git diff %s: %w: %s", revision, err, out)
	case len(out) > 0:
		return fmt.Errorf("-from %s: it has other forms than this tree, so its programs cannot run beside these; "+
			"choose a later revision: these golden files differ:\n%s", revision, out)
	}
	return nil
}

// firstProgram is the program that a process runs until it is upgraded.
func (f *fleet) firstProgram(name string) string {
	if f.from != "" {
		return f.Path("old/" + name)
	}
	return f.Program(name)
}

// start brings up the cluster, the streams, the consumers and the hosts.
func (f *fleet) start(ctx context.Context) (err error) {
	if err := f.startCluster(); err != nil {
		return err
	}
	if f.js, err = cluster.Connect(ctx, f.urls()); err != nil {
		return err
	}
	f.Cleanup(f.js.Conn().Close)
	err = cluster.InitStreams(ctx, f.firstProgram("gputap"), f.urls(), shards, nodes, shards*shardBytes)
	if err != nil {
		return err
	}
	if err := f.watchCommits(ctx); err != nil {
		return err
	}
	for _, name := range fold.Names() {
		for i := range instances {
			p := &cluster.Process{Name: fmt.Sprintf("%s-%d", name, i), Args: []string{
				f.firstProgram("gputap-" + name), "--nats.url", f.urls(), "--metrics.addr", "",
				"--display-interval", "0", "--log.format", "text",
			}}
			if name == fold.Leak.Name() {
				p.Args = append(p.Args, "--leak-window", leakWindow.String())
			}
			f.consumers = append(f.consumers, p)
			if err := f.Start(p); err != nil {
				return err
			}
		}
	}
	if err := f.startSimulators(); err != nil {
		return err
	}
	if err := cluster.Until(ctx, time.Minute, func() error {
		if have, want := len(f.commits.now().newest), shards*len(fold.Names()); have < want {
			return fmt.Errorf("the consumers own %d of %d shards", have, want)
		}
		return nil
	}); err != nil {
		return err
	}
	return f.publishDamaged(ctx)
}

// clusterOf is the cluster of a simulator's hosts.
func clusterOf(simulator int) string { return fmt.Sprintf("sim%d", simulator) }

// startSimulators starts one simulator whose hosts publish everything, and others whose hosts withhold batches and
// whose producers restart. All have jobs with a slow rank. A rank of the first simulator leaks.
func (f *fleet) startSimulators() error {
	recording := f.Path("recording")
	if err := writeRecording(recording); err != nil {
		return err
	}
	for i := range simulators {
		p := &cluster.Process{Name: fmt.Sprintf("simulate-%d", i), Args: []string{
			f.firstProgram("gputap"), "simulate", "--nats.url", f.urls(), "--cluster", clusterOf(i),
			"--hosts", strconv.Itoa((f.hosts + i) / simulators),
			"--events-per-second", strconv.Itoa(f.rate / simulators),
			"--seed", strconv.FormatUint(f.seed, 10), "--log", f.truthLog(i), "--resume",
			"--duration", "24h", "--drain", "90s", "--profile", recording,
			"--jobs", strconv.Itoa(jobs), "--slow-rank", "30%",
		}}
		if i == 0 {
			p.Args = append(p.Args, "--leak-rank", "16MiB")
		} else {
			p.Args = append(p.Args, "--restart", "--lose", "0.02")
		}
		f.simulators = append(f.simulators, p)
		if err := f.Start(p); err != nil {
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
		list = append(list, "nats://"+p.Addr().String())
	}
	return strings.Join(list, ",")
}

func (f *fleet) startCluster() error {
	list, err := f.Nodes(nodes, "8GB")
	if err != nil {
		return err
	}
	for i, n := range list {
		if i == nodes-1 && syscall.Mount("chaos", n.Store, "tmpfs", 0, "size="+f.disk) == nil {
			f.tmpfs = n.Store
			f.Cleanup(func() { _ = syscall.Unmount(n.Store, 0) })
		}
		f.nodes = append(f.nodes, &n.Process)
		proxy, err := newProxy(n.Addr)
		if err != nil {
			return err
		}
		f.Cleanup(func() { _ = proxy.Close() })
		f.proxies = append(f.proxies, proxy)
		if err := f.Start(&n.Process); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) processes() []*cluster.Process {
	return slices.Concat(f.simulators, f.consumers, f.nodes)
}
