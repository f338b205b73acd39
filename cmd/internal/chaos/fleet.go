package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	nodes      []*process
	proxies    []*proxy
	consumers  []*process
	simulators []*process
	tmpfs      string // where the last node's store is, when this process may mount one
	nc         *nats.Conn
	js         jetstream.JetStream
	began      time.Time
	did        map[string]int
	kills      []kill // of consumers
}

func newFleet(ctx context.Context, o options) (*fleet, error) {
	dir, err := os.MkdirTemp("", "gputap-chaos-")
	if err != nil {
		return nil, err
	}
	f := &fleet{options: o, dir: dir, random: rand.New(rand.NewPCG(o.seed, 1)), did: map[string]int{}, began: time.Now()}
	f.say("seed %d, %s of trouble, %d hosts, %d events/s, %d shards, %d instances of each consumer, in %s", o.seed, o.duration, o.hosts, o.rate, o.shards, o.instances, dir)
	if err := build(ctx, ".", dir+"/bin/"); err != nil {
		return nil, err
	}
	if f.from != "" {
		tree := filepath.Join(dir, "from")
		if out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, f.from).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("git worktree add %s: %w: %s", f.from, err, out)
		}
		defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() }()
		if err := build(ctx, tree, dir+"/old/"); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// build makes the programs of the fleet from a tree.
func build(ctx context.Context, tree, to string) error {
	programs := []string{"build", "-o", to, "github.com/nats-io/nats-server/v2", "./cmd/gputap"}
	for _, c := range consumers {
		programs = append(programs, "./cmd/gputap-"+c)
	}
	cmd := exec.CommandContext(ctx, "go", programs...)
	cmd.Dir, cmd.Stderr = tree, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
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
	if err := f.connect(ctx); err != nil {
		return err
	}
	initialise := exec.CommandContext(ctx, f.first("gputap"), "stream", "init", "--nats.url", f.urls(), "--shards", strconv.Itoa(f.shards),
		"--replicas", strconv.Itoa(nodes), "--max-bytes", strconv.Itoa(f.shards*shardBytes))
	if err := f.until(ctx, time.Minute, func() (err error) {
		again := *initialise
		out, err := (&again).CombinedOutput()
		if err != nil {
			return fmt.Errorf("stream init: %w: %s", err, out)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, c := range consumers {
		for i := range f.instances {
			p := &process{name: fmt.Sprintf("%s-%d", c, i), dir: f.dir, args: []string{
				f.first("gputap-" + c), "--nats.url", f.urls(), "--metrics.addr", "", "--display-interval", "0", "--log.format", "text",
			}}
			f.consumers = append(f.consumers, p)
			if err := p.start(); err != nil {
				return err
			}
		}
	}
	return f.startSimulators()
}

const simulators = 2

func (f *fleet) startSimulators() error {
	for i := range simulators {
		name := fmt.Sprintf("simulate-%d", i)
		p := &process{name: name, dir: f.dir, args: []string{
			f.first("gputap"), "simulate", "--nats.url", f.urls(), "--cluster", fmt.Sprintf("sim%d", i), "--hosts", strconv.Itoa(f.hosts / simulators),
			"--events-per-second", strconv.Itoa(f.rate / simulators), "--seed", strconv.FormatUint(f.seed, 10), "--log", f.logOf(i), "--resume",
			"--duration", "24h", "--drain", "90s",
		}}
		f.simulators = append(f.simulators, p)
		if err := p.start(); err != nil {
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
	ports := make([]int, 2*nodes)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[i] = port
	}
	var routes []string
	for i := range nodes {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[nodes+i]))
	}
	for i := range nodes {
		store := filepath.Join(f.dir, fmt.Sprintf("store-%d", i))
		if err := os.MkdirAll(store, 0o755); err != nil {
			return err
		}
		if i == nodes-1 && syscall.Mount("chaos", store, "tmpfs", 0, "size="+f.disk) == nil {
			f.tmpfs = store
		}
		conf := filepath.Join(f.dir, fmt.Sprintf("node-%d.conf", i))
		text := fmt.Sprintf(`server_name: n%d
listen: "127.0.0.1:%d"
jetstream { store_dir: %q, max_file_store: 8GB, max_memory_store: 256MB, sync_interval: 10s }
cluster { name: chaos, listen: "127.0.0.1:%d", no_advertise: true, routes: [%s] }
`, i, ports[i], store, ports[nodes+i], strings.Join(routes, ", "))
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			return err
		}
		p := &process{name: fmt.Sprintf("nats-%d", i), dir: f.dir, args: []string{f.program("nats-server"), "-c", conf}}
		f.nodes = append(f.nodes, p)
		if err := p.start(); err != nil {
			return err
		}
		proxy, err := newProxy(fmt.Sprintf("127.0.0.1:%d", ports[i]))
		if err != nil {
			return err
		}
		f.proxies = append(f.proxies, proxy)
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (f *fleet) connect(ctx context.Context) error {
	return f.until(ctx, time.Minute, func() error {
		nc, err := nats.Connect(f.urls(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
		if err != nil {
			return err
		}
		js, err := jetstream.New(nc)
		if err == nil {
			_, err = js.AccountInfo(ctx)
		}
		if err != nil {
			nc.Close()
			return fmt.Errorf("JetStream: %w", err)
		}
		f.nc, f.js = nc, js
		return nil
	})
}

// until tries once a second.
func (f *fleet) until(ctx context.Context, within time.Duration, try func() error) error {
	for deadline := time.Now().Add(within); ; {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (f *fleet) close() {
	if f.nc != nil {
		f.nc.Close()
	}
	for _, list := range [][]*process{f.simulators, f.consumers, f.nodes} {
		for _, p := range list {
			p.signal(syscall.SIGCONT)
			p.kill()
		}
	}
	for _, p := range f.proxies {
		p.close()
	}
	if f.tmpfs != "" {
		_ = syscall.Unmount(f.tmpfs, 0)
	}
	if !f.keep {
		_ = os.RemoveAll(f.dir)
	}
}
