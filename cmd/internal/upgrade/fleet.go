package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

const (
	clusterName = "default"
	hostName    = "upgraded"
	patience    = time.Minute // for a process, a batch or a state to be there
)

var (
	consumers    = []string{"leak", "launch", "bandwidth", "anomaly"}
	oldConsumers = []string{"leak", "launch"}
)

// window is the time in which a producer certainly saw everything, and when it was gone.
type window struct {
	release                *release
	settled, stopped, gone time.Time
}

// fleet is everything that runs.
type fleet struct {
	dir       string
	stage     time.Duration
	began     time.Time
	urls      string
	nodes     []*cluster.Process
	nc        *nats.Conn
	js        jetstream.JetStream
	producer  *cluster.Process
	windows   []window
	run       uint64 // of the producer's last batch that was waited for
	consumers []*cluster.Process
	olds      []*oldConsumer
	oldRows   map[uint32]oldRow // what the oldest gputap-leak said at its end, by PID
	programs  *programs
	held      *program // holds memory all the time
}

func newFleet(ctx context.Context, dir string, stage time.Duration, today *release) (*fleet, error) {
	f := &fleet{dir: dir, stage: stage, began: time.Now()}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, err
	}
	f.say("%s", filepath.Base(dir))
	nodes, err := cluster.Nodes(dir, today.program("nats-server"), 3, "8GB")
	if err != nil {
		return f, err
	}
	var urls []string
	for _, n := range nodes {
		f.nodes, urls = append(f.nodes, &n.Process), append(urls, "nats://"+n.Addr)
		if err := n.Start(); err != nil {
			return f, err
		}
	}
	f.urls = strings.Join(urls, ",")
	f.nc, f.js, err = cluster.Connect(ctx, f.urls)
	return f, err
}

func (f *fleet) say(format string, args ...any) {
	fmt.Printf("%7.1fs  "+format+"\n", append([]any{time.Since(f.began).Seconds()}, args...)...)
}

// setUp has a release set the bus up.
func (f *fleet) setUp(ctx context.Context, r *release, args ...string) error {
	args = append([]string{"stream", "init", "--nats.url", f.urls}, args...)
	return cluster.Until(ctx, patience, func() error {
		var said bytes.Buffer
		command := exec.CommandContext(ctx, r.program("gputap"), args...)
		command.Stderr = &said
		out, err := command.Output()
		if err != nil {
			return fmt.Errorf("gputap stream init of %s: %w: %s", r.name, err, &said)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		f.say("bus set up by %s: %s", r.name, lines[len(lines)-1])
		return nil
	})
}

// startProducer waits until it has told events: what programs that begin after that do, it sees.
func (f *fleet) startProducer(ctx context.Context, r *release) error {
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return err
	}
	library, err := filepath.Abs("bin/stub/libcuda.so.1")
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	f.producer = &cluster.Process{Name: "producer", Dir: f.dir, Args: []string{
		r.program("gputap-producer"), "--nats.url", f.urls, "--library", library, "--features", features, "--metrics.addr", addr,
		"--log.format", "text", "--producer.cluster", clusterName, "--producer.host", hostName,
	}}
	if err := f.producer.Start(); err != nil {
		return err
	}
	if err := cluster.Until(ctx, patience, func() error { return f.tells(ctx) }); err != nil {
		return fmt.Errorf("producer of %s: %w: see %s", r.name, err, f.producer.Log())
	}
	f.windows = append(f.windows, window{release: r, settled: time.Now()})
	f.say("producer of %s tells events, with run %d", r.name, f.run)
	return nil
}

// tells is nil when the newest memory batch of the host is of a later run than the last one that was waited for.
func (f *fleet) tells(ctx context.Context) error {
	b, err := f.newest(ctx)
	if err != nil {
		return err
	}
	if b.Run <= f.run || b.Events == 0 {
		return errors.New("it has told nothing yet")
	}
	f.run = b.Run
	return nil
}

// newest is the last memory batch in the host's present shard.
func (f *fleet) newest(ctx context.Context) (*schema.Batch, error) {
	t, err := f.topology(ctx)
	if err != nil {
		return nil, err
	}
	shard := t.Shard(clusterName, hostName)
	jsStream, err := f.js.Stream(ctx, schema.StreamName(shard))
	if err != nil {
		return nil, err
	}
	m, err := jsStream.GetLastMsgForSubject(ctx, schema.Subject(shard, clusterName, hostName, schema.KindMemory))
	if err != nil {
		return nil, fmt.Errorf("the newest memory batch: %w", err)
	}
	b := &schema.Batch{}
	return b, schema.NewDecoder().Decode(m.Data, b)
}

// topology of the bus. One that an old release has set up has one shard and says nothing of it.
func (f *fleet) topology(ctx context.Context) (schema.Topology, error) {
	t, err := consumer.ReadTopology(ctx, f.js)
	if errors.Is(err, consumer.ErrNoTopology) {
		return schema.Topology{Generation: 1, Shards: 1}, nil
	}
	return t, err
}

// shards of all generations, the oldest first.
func (f *fleet) shards(ctx context.Context) (numbers []int, err error) {
	t, err := f.topology(ctx)
	for _, g := range append(slices.Clone(t.Previous), t) {
		numbers = append(numbers, g.Numbers()...)
	}
	return numbers, err
}

// moved waits until the host publishes to a shard of the newest generation.
func (f *fleet) moved(ctx context.Context) error {
	return cluster.Until(ctx, patience, func() error {
		_, err := f.newest(ctx)
		return err
	})
}

// stopProducer ends it in order, while programs are about to free what they hold and to end: what it has seen must be
// published then.
func (f *fleet) stopProducer() error {
	w := &f.windows[len(f.windows)-1]
	w.stopped = time.Now()
	ending, err := f.programs.crowd()
	if err != nil {
		return err
	}
	if err := errors.Join(f.producer.End(syscall.SIGTERM, patience), ending()); err != nil {
		return err
	}
	w.gone = time.Now()
	if err := f.producer.Err(); err != nil {
		return fmt.Errorf("producer: %w: see %s", err, f.producer.Log())
	}
	return nil
}

// changeProducer ends one and starts another. Between the two, a program ends and another one begins.
func (f *fleet) changeProducer(ctx context.Context, r *release) error {
	gone, err := f.programs.hold(ctx)
	if err != nil {
		return err
	}
	if err := f.stopProducer(); err != nil {
		return err
	}
	if err := f.programs.kill(gone); err != nil {
		return err
	}
	late, err := f.programs.hold(ctx)
	if err != nil {
		return err
	}
	if err := f.startProducer(ctx, r); err != nil {
		return err
	}
	return f.programs.letGo(late)
}

func (f *fleet) wait(ctx context.Context) error {
	select {
	case <-time.After(f.stage):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fleet) close() {
	if f.programs != nil {
		f.programs.close()
	}
	if f.nc != nil {
		f.nc.Close()
	}
	all := append(f.consumers, f.nodes...)
	for _, o := range f.olds {
		all = append(all, &o.Process)
	}
	if f.producer != nil {
		all = append(all, f.producer)
	}
	for _, p := range all {
		p.Kill()
	}
}
