package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/attach"
	"github.com/gputap/gputap/producer/filter"
	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/producer/preflight"
	"github.com/gputap/gputap/producer/process"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// Producer watches one host. It is a prometheus.Collector.
type Producer struct {
	cfg     config.Producer
	js      jetstream.JetStream
	log     *slog.Logger
	version string

	tap        *bpf.Tap
	cgroups    *filter.CgroupTree // nil unless the filter has control groups
	probes     *attach.Probes
	spool      *spool
	batches    *batcher
	route      *router
	known      *process.Table
	translator *translator
	reader     *reader
	metrics    *metrics
	linux      string

	heartbeatAt schema.KTime // next heartbeat
	clockAt     schema.KTime // next sample of the clock offset
	checkAt     schema.KTime // next check for processes whose exit record was lost
	libraries   []schema.Library
	storing     bool // the goroutine that writes the outbox closes it
}

// New loads the BPF programs and attaches the host's libraries: a program that starts after New returned is seen from
// its first call. Run must follow. Finding no library is not an error, since a process may map one later.
func New(
	cfg config.Producer, version string, js jetstream.JetStream, log *slog.Logger,
) (made *Producer, err error) {
	p := &Producer{
		cfg: cfg, js: js, log: log, version: version, metrics: newMetrics(), spool: newSpool(int(cfg.SpoolBytes)),
	}
	if err := preflight.CheckCapabilities(log); err != nil {
		return nil, err
	}
	wanted, err := p.features()
	if err != nil {
		return nil, err
	}
	header, err := p.header()
	if err != nil {
		return nil, err
	}
	p.route = newRouter(js, header.Cluster, header.Host, cfg.Shards, log)
	if err := p.openOutbox(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.closeOutbox()
		}
	}()
	libraries, err := library.OnHost(cfg.Libraries)
	if err != nil {
		return nil, preflight.ExplainPermission(err)
	}
	multi := cfg.Uprobes == config.UprobesMulti || cfg.Uprobes == config.UprobesAuto && bpf.HaveMulti()
	passing, err := filter.Resolve(cfg.Filter, log)
	if err != nil {
		return nil, err
	}
	if p.tap, err = bpf.Load(int(cfg.RingBytes), wanted.Wants(schema.KindTensor), multi, passing); err != nil {
		return nil, err
	}
	if p.cgroups, err = filter.NewCgroupTree(cfg.Filter, p.tap, log); err != nil {
		p.tap.Close()
		return nil, err
	}
	if active := cfg.Filter.String(); active != "" {
		log.Info("only processes that pass the filter are watched", "filter", active)
	}
	p.probes = attach.New(p.tap, wanted, cfg.Libraries, log)
	p.known = process.NewTable(p.probes)
	if cfg.Jobs {
		p.known.NameJobs(header.Host)
	}
	limits := batchLimits{
		events: cfg.BatchEvents, bytes: int(cfg.BatchBytes), maxBytes: int(cfg.BatchMaxBytes), age: cfg.BatchAge,
	}
	p.batches = newBatcher(limits, header, p.spool, p.lost)
	p.translator = newTranslator(p.known, p.batches, wanted, p.metrics, p.lostRecords)
	p.translator.through = schema.KTime(header.Run) // no probe was attached before
	p.reader = &reader{translator: p.translator, metrics: p.metrics}
	if err = p.reader.open(p.tap); err == nil {
		err = p.attach(libraries)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// returnProbes is a variable for tests.
var returnProbes = preflight.ReturnProbes

// features chooses the calls to probe. Where return probes are not safe, gputap probes only entries: that leaves the
// launches and PyTorch's blocks, without GPUs, and with the kernel names that are readable in memory.
func (p *Producer) features() (attach.Features, error) {
	kinds, err := p.cfg.Kinds()
	if err != nil || p.cfg.UnsafeReturns {
		return attach.NewFeatures(kinds, false), err
	}
	unsafe := returnProbes()
	if unsafe == nil {
		return attach.NewFeatures(kinds, false), nil
	}
	kinds = slices.DeleteFunc(kinds, func(k schema.Kind) bool {
		return k != schema.KindLaunch && k != schema.KindTensor
	})
	if len(kinds) == 0 {
		return attach.Features{}, fmt.Errorf("%w: the features %s need return probes (%s)", unsafe,
			strings.Join(p.cfg.Features, ", "), preflight.ReturnProbeRemedy)
	}
	p.log.Warn("only launches and PyTorch's blocks are watched, without GPUs", "err", unsafe,
		"remedy", preflight.ReturnProbeRemedy)
	return attach.NewFeatures(kinds, true), nil
}

func (p *Producer) header() (schema.Header, error) {
	boot, err := procfs.ReadLine("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return schema.Header{}, fmt.Errorf("read boot id: %w", err)
	}
	host, err := hostName(p.cfg)
	if err != nil {
		return schema.Header{}, err
	}
	p.linux, _ = procfs.ReadLine("/proc/sys/kernel/osrelease")
	now := bootTime()
	p.clockAt = now + clockInterval
	return schema.Header{
		Cluster: p.cfg.Cluster, Host: host, BootID: boot, Run: uint64(now), ClockOffset: clockOffset(),
	}, nil
}

func (p *Producer) openOutbox() error {
	if p.cfg.Outbox == "" {
		return nil
	}
	o, err := outbox.Open(outbox.Options{
		Dir: p.cfg.Outbox, MaxBytes: int64(p.cfg.OutboxMaxBytes),
		Lost: p.spool.lost, Changed: p.spool.changed, Urgent: p.spool.urgent, Log: p.log,
	})
	p.spool.outbox = o
	return err
}

func hostName(cfg config.Producer) (string, error) {
	if cfg.Host != "" {
		return cfg.Host, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the name of this host: %w (set --producer.host)", err)
	}
	return host, nil
}

// InboxPrefix returns the subject prefix for replies to a host's producer: no other host may read below it.
func InboxPrefix(cfg config.Producer) (string, error) {
	host, err := hostName(cfg)
	return "_INBOX." + schema.Token(cfg.Cluster) + "." + schema.Token(host), err
}

// attach probes the host's libraries, and then those that running processes have mapped already. It fails only for a
// library that the user named; it logs others that cannot be attached.
func (p *Producer) attach(libraries []string) error {
	if err := p.tap.WatchProcesses(); err != nil {
		return err
	}
	for i, path := range libraries {
		if err := p.probes.AttachHost(path); err != nil {
			err = preflight.ExplainPermission(err)
			if i < len(p.cfg.Libraries) {
				return err
			}
			p.log.Warn("library not attached", "library", path, "err", err)
		}
	}
	if p.probes.Start() == 0 {
		p.log.Warn("no CUDA driver library found yet; waiting for a process that maps one",
			"remedy", "name it with --library if it is in an unusual place")
	}
	return nil
}

const (
	clockInterval = schema.KTime(time.Minute)
	// busyRound is the number of records in a round after which the next round follows without waiting.
	busyRound = 512
)

// AdjustThreads makes Run call f with the useful number of Go threads: 2 once a ring is half full, 1 a second later. A
// program that starts with one thread disturbs a quiet host least. Call it before Run.
func (p *Producer) AdjustThreads(f func(n int)) { p.reader.gomaxprocs.set = f }

// Run reads and publishes until ctx ends. Then it detaches, reads the remaining records, publishes the last batches and
// a last heartbeat with the final loss counters, and returns when all are acked or DrainTimeout is over. Batches that
// are not acked by then stay in the outbox for the next run; without an outbox they are lost, and the error says so.
// With ErrShards it returns without that wait.
func (p *Producer) Run(ctx context.Context) error {
	defer p.Close()
	var storing sync.WaitGroup
	stored, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	if p.spool.outbox != nil {
		p.storing = true
		storing.Go(func() { p.spool.store(stored) })
	}
	err := p.watch(ctx)
	finish() // after the last batch
	storing.Wait()
	return p.unsent(err)
}

// watch reads and publishes until ctx ends, and then until the rest is acked or DrainTimeout is over. The only error is
// ErrShards.
func (p *Producer) watch(ctx context.Context) error {
	publishing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	reading, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	group.Go(func() { p.route.run(publishing, abort) })
	for kind := schema.KindMemory; kind <= schema.KindHost; kind++ {
		sender := p.publisher(kind)
		group.Go(func() { sender.run(publishing) })
	}
	p.read(reading)
	p.drain()
	var aborted error
	if err := context.Cause(reading); errors.Is(err, ErrShards) {
		aborted = err
	}
	p.flush(aborted)
	return aborted
}

// read reads the rings until ctx ends. Meanwhile other goroutines attach libraries and follow control groups.
func (p *Producer) read(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { p.probes.Run(ctx, p.cfg.ScanInterval) })
	group.Go(func() { p.cgroups.Run(ctx) })
	for ctx.Err() == nil {
		p.step()
	}
}

func (p *Producer) publisher(kind schema.Kind) *publisher {
	return &publisher{js: p.js, spool: p.spool, route: p.route, kind: kind, metrics: p.metrics, log: p.log}
}

// step is one round: read the records that are there, close the batches that are due, wait for more records.
func (p *Producer) step() {
	n := p.round()
	now := bootTime()
	p.batches.closeDue(now)
	p.known.Expire(now)
	p.metrics.discarded.Add(uint64(p.known.Trim(process.MaxRemembered)))
	if now >= p.checkAt {
		p.checkAt = now + process.CheckInterval
		p.checkVanished()
		p.heartbeatAt = min(p.heartbeatAt, now+p.interval())
	}
	p.metrics.processes.Store(int64(p.known.Len()))
	if now >= p.clockAt {
		p.clockAt = now + clockInterval
		p.batches.header.ClockOffset = clockOffset()
	}
	if now >= p.heartbeatAt {
		p.heartbeatAt = now + p.interval()
		p.heartbeat()
	}
	if n < busyRound {
		p.reader.wait(p.cfg.BatchAge)
	}
}

// round reads the rings once, and then applies the changes that the probes found before.
func (p *Producer) round() int {
	changes := p.probes.TakeChanges()
	n := p.reader.drain()
	for pid := range changes.Late {
		p.known.UpdateLate(pid)
	}
	for id, name := range changes.Names {
		p.known.Rename(id.PID, id.TID, unix.ByteSliceToString(name[:]))
	}
	if changes.Older != nil {
		p.batches.setOlder(changes.Older, p.translator.now) // after the exits that were read
	}
	return n
}

// checkVanished adds exit events of processes whose exit record was lost.
func (p *Producer) checkVanished() {
	lost := p.lost()
	for _, end := range p.known.Vanished(lost[schema.LossControlRing] + lost[schema.LossState]) {
		p.translator.end(&end)
	}
}

// interval returns the time between two heartbeats. On a host with ranks of jobs it is one window of theirs: windows
// close at heartbeats.
func (p *Producer) interval() schema.KTime {
	if p.known.HasRanks() {
		return schema.KTime(min(p.cfg.Heartbeat, schema.RankWindow))
	}
	return schema.KTime(p.cfg.Heartbeat)
}

func (p *Producer) heartbeat() {
	p.noteLibraries()
	p.batches.heartbeat(p.libraries, p.known, p.linux, p.version, p.translator.through)
}

// Close releases a Producer whose Run is not called; Run releases it itself.
func (p *Producer) Close() {
	p.probes.Close()
	p.reader.close()
	p.cgroups.Close()
	p.tap.Close()
	p.closeOutbox()
}

// closeOutbox leaves the directory, unless store does.
func (p *Producer) closeOutbox() {
	if p.spool.outbox != nil && !p.storing {
		p.spool.outbox.Close()
	}
}
