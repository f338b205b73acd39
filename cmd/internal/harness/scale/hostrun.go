package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// hostLoad is a program's calls while a real producer is stopped, so that a ring fills.
type hostLoad struct {
	function string // argument of `workload bench`
	kind     schema.Kind
	fold     string
	ops      []schema.Op // events of one call, one of each op
	folded   float64     // events that keep a fold busy for some seconds
}

var hostLoads = []hostLoad{
	{"launch", schema.KindLaunch, "launch", []schema.Op{schema.OpLaunch}, 200e6},
	{"alloc", schema.KindMemory, "leak", []schema.Op{schema.OpAlloc, schema.OpFree}, 30e6},
}

const (
	hostCluster = "scale"
	hostName    = "traced-host-000" // long enough to be unique in a batch
	// A record takes at most 104 bytes of the ring.
	hostRound = 2_500_000              // events
	hostRing  = 256 << 20              // bytes of the control ring and of the ring of each CPU, at least
	manyAcks  = 64                     // messages in flight of the faster raw publisher
	quietTime = 300 * time.Millisecond // without an ack; then the producer's metrics are read
)

// hostRun compares a producer with raw publishers of the same bytes.
type hostRun struct {
	*bench
	hostLoad
	url      string // of the node that leads the stream, to which all connect
	stream   jetstream.Stream
	acks     *acks
	producer *cluster.Process
	metrics  string
	caller   string  // the workload under a unique name, so that no other program is traced
	latest   pass    // of the producer
	called   float64 // events of the program's calls in all passes
	seen     float64 // all events that the producer has read; a few more, such as exits of programs
	result   *hostResult
}

// checkHostPrograms returns an error if something is missing.
func (o *options) checkHostPrograms() error {
	if os.Geteuid() != 0 {
		return errors.New("-host-events: a producer traces programs, which needs root: run as root")
	}
	for _, path := range []string{o.stub(), o.workload()} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("-host-events: %w: run make stub, or make bin/scale.tar.gz for another machine", err)
		}
	}
	return nil
}

func (o *options) stub() string     { return filepath.Join(o.stubs, "stub", "libcuda.so.1") }
func (o *options) workload() string { return filepath.Join(o.stubs, "workload") }

// host measures one load: from a host to NATS, and from there to a fold.
func (b *bench) host(ctx context.Context, load hostLoad, r *hostResult) error {
	if err := b.purge(ctx, true); err != nil {
		return err
	}
	h := &hostRun{bench: b, hostLoad: load, stream: b.streams[0], result: r}
	leader := h.stream.CachedInfo().Cluster.Leader
	for i, n := range b.nodes {
		if leader == fmt.Sprintf("n%d", i) {
			h.url, r.Leader = "nats://"+n.Addr, i
		}
	}
	var err error
	if h.acks, err = watchAcks(h.url, 0); err != nil {
		return err
	}
	defer h.acks.nc.Close()
	if err := h.startProducer(ctx); err != nil {
		return err
	}
	_, first, err := b.stored(ctx)
	if err != nil {
		return err
	}
	if err := h.rounds(ctx); err != nil {
		return err
	}
	if _, now, err := b.stored(ctx); err != nil || now[0] != first[0] {
		return errors.Join(err, errors.New("the stream has removed its first messages: use fewer -host-events"))
	}
	if err := h.producer.Stop(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	copies, err := h.multiply(ctx)
	if err != nil {
		return err
	}
	if err := b.backlogs(ctx, load.fold, []int{1}, &r.folded); err != nil {
		return err
	}
	if all := r.Backlog[0].All; all < h.called*copies || all > h.seen*copies {
		return fmt.Errorf("%s has applied %.0f events of %.0f hosts; each made at least %.0f and at most %.0f",
			load.fold, all, copies, h.called, h.seen)
	}
	return nil
}

// rounds runs the producer and both raw publishers in rotating order. A raw publisher publishes the messages of the
// producer's latest pass.
func (h *hostRun) rounds(ctx context.Context) error {
	windows := []int{0, 1, manyAcks}
	turn := func(round, window int) (*pass, error) {
		if window == 0 {
			return h.trace(ctx, round)
		}
		return h.publishRaw(ctx, round, window)
	}
	for _, window := range windows[:2] { // to warm up
		if _, err := turn(-1, window); err != nil {
			return err
		}
	}
	for round := range max(int((h.hostEvents+hostRound-1)/hostRound), 1) {
		for i := range windows {
			p, err := turn(round, windows[(round+i)%len(windows)])
			if err != nil {
				return err
			}
			h.result.Passes = append(h.result.Passes, *p)
		}
	}
	return nil
}

// multiply stores the producer's messages again as those of other hosts, until a fold takes long enough to be measured.
func (h *hostRun) multiply(ctx context.Context) (copies float64, err error) {
	last, err := h.lastSeq(ctx)
	if err != nil {
		return 0, err
	}
	for copies = 1; copies*h.called < max(h.folded, h.hostEvents) && copies < 1000; copies++ {
		host := fmt.Sprintf("%s%03.0f", strings.TrimSuffix(hostName, "000"), copies)
		p, _, err := h.publisher(ctx, 1, last, manyAcks, schema.Subject(0, hostCluster, host, h.kind), host)
		if err != nil {
			return 0, err
		}
		if err := p.Stop(syscall.SIGTERM, time.Minute); err != nil {
			return 0, err
		}
	}
	h.Say("%s: stored as messages of %.0f hosts", h.function, copies)
	return copies, nil
}

func (h *hostRun) startProducer(ctx context.Context) error {
	ports, err := cluster.FreePorts(1)
	if err != nil {
		return err
	}
	addr := "127.0.0.1:" + strconv.Itoa(ports[0])
	h.caller = h.Path(fmt.Sprint("call-", os.Getpid()))
	program, err := filepath.Abs(h.workload())
	if err == nil {
		err = os.Symlink(program, h.caller)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("link the workload under a unique name: %w", err)
	}
	h.metrics = "http://" + addr + "/metrics"
	h.producer = &cluster.Process{Name: "producer-" + h.function, CPUs: h.hostCPUs, Args: []string{
		"/usr/bin/env", "GOMAXPROCS=", h.Program("gputap-producer"), // the producer sets GOMAXPROCS itself
		"--nats.url", h.url, "--metrics.addr", addr, "--producer.cluster", hostCluster, "--producer.host", hostName,
		"--features", h.kind.String(), "--library", h.stub(),
		"--producer.ring_bytes", strconv.Itoa(2 * hostRing * max(2, runtime.NumCPU())),
		"--producer.heartbeat", "24h",
		"--producer.batch_age", "5ms", // how long the last events of a pass wait for more
		"--filter.comm", filepath.Base(h.caller),
	}}
	if err := h.start(h.producer); err != nil {
		return err
	}
	return cluster.Until(ctx, startLimit, func() error {
		if err := cluster.CheckRunning(h.producer); err != nil {
			return err
		}
		c, err := h.counters()
		if err == nil && (c.probes == 0 || c.batches == 0) {
			err = errors.New("the producer has not attached its probes and sent its first heartbeat")
		}
		return err
	})
}

func (h *hostRun) subject(last string) string {
	all := schema.Subject(0, hostCluster, hostName, h.kind)
	return strings.TrimSuffix(all, h.kind.String()) + last
}

func (h *hostRun) lastSeq(ctx context.Context) (uint64, error) {
	sum, _, err := h.stored(ctx)
	return sum, err
}

func (h *hostRun) counters() (hostCounters, error) { return readHostCounters(h.metrics, h.ops) }
