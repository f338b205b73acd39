package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// Producer watches one host. It is a prometheus.Collector.
type Producer struct {
	cfg     config.Producer
	js      jetstream.JetStream
	log     *slog.Logger
	version string

	tap     *bpf.Tap
	cgroups *cgroupTree // nil unless processes are chosen by control group
	probes  *probes
	spool   *spool
	batches *batcher
	route   *router
	known   *processes
	reader  *reader
	metrics *metrics
	linux   string

	heartbeatAt schema.KTime // next heartbeat
	clockAt     schema.KTime // next sample of the clock offset
	lookAt      schema.KTime // next look for processes whose end was lost
	libraries   []schema.Library
	storing     bool // the outbox is left by the goroutine that writes it
}

// New loads the programs and attaches the host's libraries, so that what starts after it returns is
// seen from its first call. Run must follow. No library at all is not an error: one may be mapped
// later.
func New(cfg config.Producer, version string, js jetstream.JetStream, log *slog.Logger) (made *Producer, err error) {
	p := &Producer{cfg: cfg, js: js, log: log, version: version, metrics: newMetrics(), spool: newSpool(int(cfg.SpoolBytes))}
	if err := p.allowed(); err != nil {
		return nil, err
	}
	kinds, entriesOnly, err := p.watched()
	if err != nil {
		return nil, err
	}
	wanted := newFeatures(kinds)
	wanted.entriesOnly = entriesOnly
	header, err := p.header()
	if err != nil {
		return nil, err
	}
	p.route = newRouter(js, header.Cluster, header.Host, cfg.Shards, log)
	if err := p.openOutbox(&header); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.closeOutbox()
		}
	}()
	libraries, err := HostLibraries(cfg.Libraries)
	if err != nil {
		return nil, unprivileged(err)
	}
	multi := cfg.Uprobes == config.UprobesMulti || cfg.Uprobes == config.UprobesAuto && bpf.HaveMulti()
	filter, err := resolveFilter(cfg.Filter, log)
	if err != nil {
		return nil, err
	}
	if p.tap, err = bpf.Load(int(cfg.ControlRingBytes), int(cfg.BulkRingBytes), multi, filter); err != nil {
		return nil, err
	}
	if p.cgroups, err = newCgroupTree(cfg.Filter, p.tap, log); err != nil {
		p.tap.Close()
		return nil, err
	}
	if active := cfg.Filter.String(); active != "" {
		log.Info("only processes that pass the filter are watched", "filter", active)
	}
	p.probes = newProbes(p.tap, wanted, cfg.Libraries, p.metrics, log)
	p.known = newProcesses(p.probes, p.probes)
	limits := batchLimits{
		events: cfg.BatchEvents, bytes: int(cfg.BatchBytes), maxBytes: int(cfg.BatchMaxBytes), age: cfg.BatchAge,
	}
	p.batches = newBatcher(limits, header, p.spool, p.lost)
	if p.reader, err = newReader(p.tap, p.known, p.batches, wanted, p.metrics); err != nil {
		p.probes.close()
		p.cgroups.close()
		p.tap.Close()
		return nil, err
	}
	if err := p.attach(libraries); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Producer) header() (schema.Header, error) {
	boot, err := bootID()
	if err != nil {
		return schema.Header{}, err
	}
	host, err := hostName(p.cfg)
	if err != nil {
		return schema.Header{}, err
	}
	p.linux, _ = readLine("/proc/sys/kernel/osrelease")
	now := bootTime()
	p.clockAt = now + clockInterval
	return schema.Header{
		Cluster: p.cfg.Cluster, Host: host, BootID: boot, Run: uint64(now), ClockOffset: clockOffset(),
	}, nil
}

func (p *Producer) openOutbox(h *schema.Header) error {
	if p.cfg.Outbox == "" {
		return nil
	}
	o, err := outbox.Open(outbox.Options{
		Dir: p.cfg.Outbox, MaxBytes: int64(p.cfg.OutboxMaxBytes), Cluster: h.Cluster, Host: h.Host,
		Run: fmt.Sprint(h.BootID, " ", h.Run), Lost: p.spool.lost, Changed: p.spool.changed, Log: p.log,
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
		return "", fmt.Errorf("name of this host: %w (set --producer.host)", err)
	}
	return host, nil
}

// InboxPrefix is where the replies to a host's producer come: below it no other host may read.
func InboxPrefix(cfg config.Producer) (string, error) {
	host, err := hostName(cfg)
	return "_INBOX." + schema.Token(cfg.Cluster) + "." + schema.Token(host), err
}

// attach probes the host's libraries and then what running processes have mapped already. A library
// that the user named must attach; others are reported and passed over.
func (p *Producer) attach(libraries []string) error {
	if err := p.tap.WatchProcesses(); err != nil {
		return err
	}
	for i, path := range libraries {
		if err := p.probes.attachHost(path); err != nil {
			err = unprivileged(err)
			if i < len(p.cfg.Libraries) {
				return err
			}
			p.log.Warn("library not attached", "library", path, "err", err)
		}
	}
	p.probes.scan()
	p.probes.attachPending()
	p.probes.tellOlder()
	if p.metrics.libraries.Load() == 0 {
		p.log.Warn("no CUDA driver library found yet: waiting for a process that maps one",
			"remedy", "name it with --library if it is in an unusual place")
	}
	return nil
}

const (
	clockInterval = schema.KTime(time.Minute)
	// most records of one round before the loop looks at its deadlines again without waiting
	busyRound = 512
)

// Threads has Run call f when threads of Go are of use, 2 once a ring is half full and 1 a second after: a program that
// has one until then disturbs a quiet host least. Call it before Run.
func (p *Producer) Threads(f func(n int)) { p.reader.threads.set = f }

// Run reads and publishes until ctx ends. Then it detaches, reads what is left, publishes the last
// batches and a last heartbeat with the final loss counters, and returns when all are acked or
// DrainTimeout is over. Batches that are not acked by then stay in the outbox for the next run; without one they are
// lost and said in the error. ErrShards ends it without that wait: what was promised of the bus is not so.
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
	finish() // nothing comes any more, and nothing goes
	storing.Wait()
	return p.unsent(err)
}

// watch reads and publishes until ctx ends and the rest is acked or DrainTimeout is over. The only error is ErrShards.
func (p *Producer) watch(ctx context.Context) error {
	publishing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	reading, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	group.Go(func() { p.route.run(publishing, refuse) })
	for kind := schema.KindMemory; kind < schema.NumKinds; kind++ {
		sender := p.publisher(kind)
		group.Go(func() { sender.run(publishing) })
	}
	p.read(reading)
	p.drain()
	var refused error
	if err := context.Cause(reading); errors.Is(err, ErrShards) {
		refused = err
	}
	p.leave(refused)
	return refused
}

// read is the time of watching: libraries are looked for until it returns.
func (p *Producer) read(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() { p.probes.run(ctx, p.cfg.ScanInterval) })
	looking.Go(func() { p.cgroups.run(ctx) })
	for ctx.Err() == nil {
		p.step()
	}
}

func (p *Producer) publisher(kind schema.Kind) *publisher {
	return &publisher{js: p.js, spool: p.spool, route: p.route, kind: kind, metrics: p.metrics, log: p.log}
}

// step is one round: read what is there, close what is due, wait for more.
func (p *Producer) step() {
	n := p.round()
	now := bootTime()
	p.batches.closeDue(now)
	p.known.forget(now)
	p.metrics.forgot.Add(uint64(p.known.trim(mostRemembered)))
	if now >= p.lookAt {
		p.lookAt = now + look
		p.look()
	}
	p.metrics.processes.Store(int64(len(p.known.byPID)))
	if now >= p.clockAt {
		p.clockAt = now + clockInterval
		p.batches.header.ClockOffset = clockOffset()
	}
	if now >= p.heartbeatAt {
		p.heartbeatAt = now + schema.KTime(p.cfg.Heartbeat)
		p.heartbeat()
	}
	if n < busyRound {
		p.reader.wait(p.cfg.BatchAge)
	}
}

// round reads what is in the rings, and then applies what was learned beside them before.
func (p *Producer) round() int {
	names, late, older := p.probes.changes.take()
	n := p.reader.drain()
	p.known.change(names, late)
	if older != nil {
		p.batches.older(older, p.reader.now) // behind the ends that were told
	}
	return n
}

// look tells the ends of processes that were lost with records.
func (p *Producer) look() {
	lost := p.lost()
	p.known.doubt(lost[schema.LossControlRing] + lost[schema.LossState])
	for _, q := range p.known.vanished() {
		p.reader.vanish(q)
	}
}

func (p *Producer) heartbeat() {
	if libraries := p.probes.list(); len(libraries) > 0 {
		p.libraries = libraries
	}
	p.batches.heartbeat(p.libraries, p.reader.cards, p.known, p.linux, p.version)
}

// lost gathers the loss counters of Linux and of the spool.
func (p *Producer) lost() (all [schema.NumLosses]uint64) {
	counted, err := p.tap.Lost()
	if err != nil {
		p.log.Error("loss counters unreadable", "err", err)
	}
	copy(all[:], counted[:])
	all[schema.LossSpool] = p.spool.level().droppedEvents
	for cause, n := range all {
		p.metrics.lost[cause].Store(n)
	}
	return all
}

// drain is the end: no probe is left, so two empty rounds mean that every record has been read.
func (p *Producer) drain() {
	p.known.leaving = bootTime()
	p.probes.detach()
	for p.round() > 0 {
	}
}

// leave closes the last batches and waits for their acks, for none of a bus that was refused.
func (p *Producer) leave(refused error) {
	p.batches.closeAll()
	deadline := time.Now()
	if refused == nil {
		deadline = deadline.Add(p.cfg.DrainTimeout)
	}
	if p.flushed(deadline) || p.spool.outbox != nil {
		p.heartbeat() // last, so that a consumer that has seen it has seen everything
		p.flushed(deadline)
	}
}

func (p *Producer) flushed(deadline time.Time) bool {
	for p.spool.level().batches > 0 {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// unsent says what became of batches that were not acked in time, or since the bus was refused.
func (p *Producer) unsent(refused error) error {
	l := p.spool.level()
	if kept := l.outbox.Batches; kept > 0 {
		p.log.Info("the bus did not ack in time: batches stay in the outbox for the next start", "dir", p.cfg.Outbox, "batches", kept)
	}
	if l.unstored == 0 {
		return refused
	}
	lost := fmt.Sprintf("%d batches (%d bytes) are lost", l.unstored, l.bytes)
	if refused != nil {
		return fmt.Errorf("%w; %s", refused, lost)
	}
	return errors.New("the bus did not ack in time: " + lost)
}

// Close ends a Producer whose Run is not called; Run does it itself.
func (p *Producer) Close() {
	p.probes.close()
	p.reader.close()
	p.cgroups.close()
	p.tap.Close()
	p.closeOutbox()
}

// closeOutbox leaves the directory, unless store does.
func (p *Producer) closeOutbox() {
	if p.spool.outbox != nil && !p.storing {
		p.spool.outbox.Close()
	}
}
