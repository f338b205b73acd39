package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
	"github.com/gputap/gputap/cmd/internal/harness/table"
	"github.com/gputap/gputap/schema"
)

// hostLoad is a program's calls while a real producer is stopped, so that a ring fills.
type hostLoad struct {
	function string // argument of `workload bench`
	kind     schema.Kind
	fold     string
	ops      []string // events of one call, one of each op
	folded   float64  // events that keep a fold busy for some seconds
}

var hostLoads = map[string]hostLoad{
	"launch": {"launch", schema.KindLaunch, "launch", []string{schema.OpLaunch.String()}, 200e6},
	"alloc":  {"alloc", schema.KindMemory, "leak", []string{schema.OpAlloc.String(), schema.OpFree.String()}, 30e6},
}

func loadOf(function string) (hostLoad, error) {
	l, known := hostLoads[function]
	if !known {
		return l, fmt.Errorf("unknown call %q; use launch or alloc", function)
	}
	return l, nil
}

const (
	hostCluster = "scale"
	workload    = "workload"        // a program beside the stub driver
	hostName    = "traced-host-000" // long enough to be unique in a batch
	// A record takes at most 104 bytes of the ring.
	hostRound = 2_500_000 // events
	hostRing  = 256 << 20 // bytes of the control ring and of the ring of each CPU, at least
)

// windows are the messages in flight of the publishers that are compared; 0 is the producer.
var windows = []int{0, 1, 64}

// hostRun compares a producer with raw publishers of the same bytes.
type hostRun struct {
	*bench
	hostLoad
	url      string // of the node that leads the stream, to which all connect
	stream   jetstream.Stream
	lastAck  *atomic.Pointer[time.Time]
	producer *cluster.Process
	metrics  string // its address
	first    uint64 // sequence of the producer's latest pass
	called   float64
	passes   map[int][]pass // by window
}

// host measures one load: from a host to NATS, and from there to a fold.
func (b *bench) host(ctx context.Context, load hostLoad) (err error) {
	if err := b.purge(ctx, true); err != nil {
		return err
	}
	h := &hostRun{bench: b, hostLoad: load, stream: b.streams[0], passes: map[int][]pass{}}
	for i, n := range b.nodes {
		if h.stream.CachedInfo().Cluster.Leader == fmt.Sprintf("n%d", i) {
			h.url = "nats://" + n.Addr
		}
	}
	nc, err := nats.Connect(h.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	if h.lastAck, err = watchAcks(nc); err != nil {
		return err
	}
	if err := h.startProducer(ctx); err != nil {
		return err
	}
	if err := h.rounds(ctx); err != nil {
		return err
	}
	if err := h.producer.Stop(syscall.SIGTERM, time.Minute); err != nil {
		return err
	}
	h.print()
	if err := h.multiply(ctx); err != nil {
		return err
	}
	return b.backlogs(ctx, load.fold, []int{1})
}

func (h *hostRun) startProducer(ctx context.Context) error {
	addrs, err := cluster.FreeAddrs(1)
	if err != nil {
		return err
	}
	h.metrics = addrs[0]
	h.producer = &cluster.Process{Name: "producer-" + h.function, CPUs: h.simulatorCPUs, Args: []string{
		"/usr/bin/env", "GOMAXPROCS=", h.Program("gputap-producer"), // the producer sets GOMAXPROCS itself
		"--nats.url", h.url, "--metrics.addr", h.metrics, "--library", h.stub(), "--features", h.kind.String(),
		"--producer.cluster", hostCluster, "--producer.host", hostName,
		"--producer.ring_bytes", strconv.Itoa(2 * hostRing * max(2, runtime.NumCPU())),
		"--producer.heartbeat", "24h",
		"--producer.batch_age", "5ms", // how long the last events of a pass wait for more
		"--filter.comm", workload,
	}}
	if err := h.Start(h.producer); err != nil {
		return err
	}
	return cluster.Until(ctx, startLimit, func() error {
		page, err := h.page()
		probes := page.Sum("gputap_producer_attached_probes")
		batches := page.Sum("gputap_producer_batches_total", "acked")
		if err == nil && (probes == 0 || batches == 0) {
			err = errors.New("the producer has not attached its probes and sent its first heartbeat")
		}
		return errors.Join(err, cluster.CheckRunning(h.producer))
	})
}

func (h *hostRun) stub() string { return filepath.Join(h.stubs, "stub", "libcuda.so.1") }

func (h *hostRun) page() (scrape.Page, error) { return scrape.Get(h.metrics, "gputap_producer_") }

// subject returns the subject of the producer's messages, or of those of another host.
func (h *hostRun) subject(host string) string { return schema.Subject(0, hostCluster, host, h.kind) }

// rounds runs the producer and both raw publishers in rotating order. A raw publisher publishes the messages of the
// producer's latest pass.
func (h *hostRun) rounds(ctx context.Context) error {
	for _, window := range windows[:2] { // to warm up
		if _, err := h.pass(ctx, window); err != nil {
			return err
		}
	}
	for round := range int((h.hostEvents + hostRound - 1) / hostRound) {
		for i := range windows {
			window := windows[(round+i)%len(windows)]
			p, err := h.pass(ctx, window)
			if err != nil {
				return err
			}
			h.passes[window] = append(h.passes[window], *p)
			h.Say("%s, round %d, %d in flight: %.2f M events/s", h.function, round, window, p.rate()/1e6)
		}
	}
	return nil
}

// multiply stores the producer's messages again as those of other hosts, until a fold takes long enough to be measured.
func (h *hostRun) multiply(ctx context.Context) error {
	copies := 1
	for ; float64(copies)*h.called < max(h.folded, h.hostEvents) && copies < 1000; copies++ {
		host := fmt.Sprintf("%s%03d", strings.TrimSuffix(hostName, "000"), copies)
		messages, err := loadMessages(ctx, h.js, 1, h.subject(hostName), h.subject(host), host)
		if err != nil {
			return err
		}
		if err := publishAll(ctx, h.js.Conn(), messages, slices.Max(windows)); err != nil {
			return err
		}
	}
	h.Say("%s: stored as messages of %d hosts", h.function, copies)
	return nil
}

func (h *hostRun) print() {
	table.Head(fmt.Sprintf("Ring to ack, three nodes, three copies: %s, medians of %d rounds", h.function,
		len(h.passes[0])), "publisher", "M events/s, min to max", "ratio of the producer, min to max (budget ≥ 0.8)",
		"events and bytes of a batch", "its CPU s per M events", "nodes")
	for _, window := range windows {
		name := "producer, ring to ack"
		if window > 0 {
			name = fmt.Sprintf("raw publisher of the same bytes, %d in flight", window)
		}
		var rates, ratios, events, bytes, own, nodes []float64
		for i, p := range h.passes[window] {
			rates = append(rates, p.rate()/1e6)
			ratios = append(ratios, h.passes[0][i].rate()/p.rate())
			events = append(events, p.events/p.Messages)
			bytes = append(bytes, p.Bytes/p.Messages)
			own = append(own, p.processesCPU/p.events*1e6)
			nodes = append(nodes, p.nodesCPU/p.events*1e6)
		}
		ratio := ""
		if window > 0 {
			ratio = summary("%.2f", ratios)
		}
		f := fmt.Sprintf
		table.Row(name, summary("%.2f", rates), ratio, f("%.0f, %.0f", median(events), median(bytes)),
			f("%.3f", median(own)), f("%.3f", median(nodes)))
	}
}

// summary shows the median, the least and the largest value of a list that is not empty.
func summary(format string, list []float64) string {
	return fmt.Sprintf(format+", "+format+" to "+format, median(list), slices.Min(list), slices.Max(list))
}

// median returns the median of a list that is not empty.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
