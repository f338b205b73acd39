package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// instances are processes that share the shards of a fold, and the URLs of their metrics.
type instances struct {
	processes []*cluster.Process
	urls      []string
	messages  float64 // that they have to read
}

// sample is what instances had done and used at one moment.
type sample struct {
	reading
	each []counters
	sum  counters
}

// backlogs folds all stored messages with each number of instances, each time between two runs of as many no-op
// consumers.
func (b *bench) backlogs(ctx context.Context, fold string, instances []int, to *folded) error {
	messages, err := b.messagesOf(ctx, fold)
	if err != nil {
		return err
	}
	first := len(to.Baseline)
	runBaseline := func(count int) error {
		r, err := b.backlog(ctx, fold, count, messages, true)
		if err == nil {
			to.Baseline = append(to.Baseline, *r)
		}
		return err
	}
	var events float64
	for _, n := range instances {
		if err := runBaseline(n); err != nil {
			return err
		}
		r, err := b.backlog(ctx, fold, n, messages, false)
		if err != nil {
			return err
		}
		if events == 0 {
			events = r.All
		}
		if r.All != events {
			return fmt.Errorf("%d instances of %s have applied %.0f events, but %d instances applied %.0f", n, fold,
				r.All, instances[0], events)
		}
		r.MessageBytes = to.Baseline[first].MessageBytes
		to.Backlog = append(to.Backlog, *r)
		if err := runBaseline(n); err != nil {
			return err
		}
	}
	for i := range to.Baseline[first:] {
		to.Baseline[first+i].EventsPerMessage = events / messages
	}
	return nil
}

// messagesOf counts the messages that a fold reads of all shards.
func (b *bench) messagesOf(ctx context.Context, fold string) (sum float64, err error) {
	for shard, s := range b.streams {
		for _, filter := range filters(fold, shard) {
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
			if err != nil {
				return 0, fmt.Errorf("count the messages of shard %d: %w", shard, err)
			}
			for _, n := range info.State.Subjects {
				sum += float64(n)
			}
		}
	}
	return sum, nil
}

// backlog folds all stored messages with so many instances, or has as many no-op consumers read them.
func (b *bench) backlog(ctx context.Context, fold string, count int, messages float64, baseline bool) (*backlogResult,
	error) {
	if err := b.purge(ctx, false); err != nil {
		return nil, err
	}
	start, who := b.startInstances, "instances"
	if baseline {
		start, who = b.startNoops, "no-op consumers"
	}
	in, err := start(ctx, fold, count, b.instanceCPUs)
	if err != nil {
		return nil, err
	}
	in.messages = messages
	began := time.Now()
	samples, err := b.follow(ctx, in)
	if err != nil {
		return nil, err
	}
	r, err := b.conclude(in, fold, count, samples)
	if err != nil {
		return nil, err
	}
	r.TotalSeconds = time.Since(began).Seconds()
	b.Say("%s, %d %s: %.2f M events/s, %.0f messages/s", fold, count, who, r.EventsPerSecond/1e6, r.MessagesPerSecond)
	return r, in.stop()
}

// startInstances starts each instance on its CPUs. All are announced first, so that none acquires the shards of one
// that is still starting.
func (b *bench) startInstances(ctx context.Context, fold string, count int, cpus [][]int) (*instances, error) {
	name := func(i int) string { return fmt.Sprintf("%s-%d-of-%d", fold, i, count) }
	for i := range count {
		if err := b.announce(ctx, fold, name(i)); err != nil {
			return nil, err
		}
	}
	return b.startEach(count, cpus, func(i int, addr string) *cluster.Process {
		return &cluster.Process{Name: name(i), Args: []string{
			b.Program("gputap-" + fold), "--nats.url", b.urls(), "--metrics.addr", addr,
			"--consumer.instance", name(i), "--display-interval", "0",
		}}
	})
}

// startNoops starts no-op consumers, each with its part of the shards.
func (b *bench) startNoops(_ context.Context, fold string, count int, cpus [][]int) (*instances, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.startEach(count, cpus, func(i int, addr string) *cluster.Process {
		return &cluster.Process{Name: fmt.Sprintf("noop-%s-%d-of-%d", fold, i, count), Args: []string{
			self, "noop", "-nats.url", b.urls(), "-fold", fold, "-shards", strconv.Itoa(b.shards),
			"-part", strconv.Itoa(i), "-of", strconv.Itoa(count), "-metrics.addr", addr,
		}}
	})
}

func (b *bench) startEach(count int, cpus [][]int, process func(i int, addr string) *cluster.Process) (*instances,
	error) {
	ports, err := cluster.FreePorts(count)
	if err != nil {
		return nil, err
	}
	in := &instances{}
	for i, port := range ports {
		addr := "127.0.0.1:" + strconv.Itoa(port)
		p := process(i, addr)
		p.CPUs = cpus[i%len(cpus)]
		in.processes, in.urls = append(in.processes, p), append(in.urls, "http://"+addr)
	}
	for _, p := range in.processes {
		if err := b.start(p); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// announce registers an instance as a member of the consumer group, as the instance itself will do.
func (b *bench) announce(ctx context.Context, fold, instance string) error {
	kv, err := b.js.KeyValue(ctx, schema.LeaseBucket)
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", schema.LeaseBucket, err)
	}
	value, err := json.Marshal(map[string]string{"instance": instance})
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, "m."+schema.Token(fold)+"."+instance, value)
	return err
}

// sample reads the counters of all instances at once, and then their usage.
func (b *bench) sample(in *instances) (s sample, err error) {
	s.each = make([]counters, len(in.urls))
	errs := make([]error, len(in.urls))
	var group sync.WaitGroup
	for i, url := range in.urls {
		group.Go(func() { s.each[i], errs[i] = readCounters(url) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	for _, c := range s.each {
		s.sum.add(&c)
	}
	s.reading, err = b.read(in.processes...)
	return s, err
}

const (
	startLimit = 30 * time.Second // for the first metrics page
	stallLimit = time.Minute      // without progress while messages are left
	// A page of a thousand hosts in one shard costs its instance half a second.
	longestPause = 5 * time.Second
)

// follow samples until all messages are read. It samples less often if a sample takes long, because a page costs the
// instance time.
func (b *bench) follow(ctx context.Context, in *instances) (list []sample, err error) {
	moved, before := time.Now(), 0.0
	for {
		began := time.Now()
		s, err := b.sample(in)
		took := time.Since(began)
		switch {
		case err == nil:
			list = append(list, s)
		case len(list) > 0 || time.Since(moved) > startLimit:
			return nil, err
		}
		if err == nil && s.sum.batches >= in.messages {
			return list, nil
		}
		if s.sum.batches > before {
			moved, before = time.Now(), s.sum.batches
		}
		if time.Since(moved) > stallLimit {
			return nil, fmt.Errorf("%s makes no progress at %.0f of %.0f messages: run with -keep and see its log",
				in.processes[0].Name, s.sum.batches, in.messages)
		}
		pause := min(max(5*took, 100*time.Millisecond), longestPause)
		if err := errors.Join(cluster.Sleep(ctx, pause), cluster.CheckRunning(in.processes...)); err != nil {
			return nil, err
		}
	}
}

// window returns the steady part: between a tenth and nine tenths of the messages.
func window(list []sample, messages float64) (first, last int) {
	first, last = 0, len(list)-1
	for first < last && list[first].sum.batches < messages/10 {
		first++
	}
	for last > first && list[last].sum.batches > messages*9/10 {
		last--
	}
	return first, last
}

const leastWindow = 1.0 // seconds

func (b *bench) conclude(in *instances, fold string, count int, list []sample) (*backlogResult, error) {
	end := &list[len(list)-1]
	if end.sum.rejected > 0 || end.sum.missing > 0 {
		return nil, fmt.Errorf("%s: %.0f batches were invalid or rejected, %.0f are missing",
			in.processes[0].Name, end.sum.rejected, end.sum.missing)
	}
	i, j := window(list, in.messages)
	first, last := &list[i], &list[j]
	u := first.until(last.reading)
	r := &backlogResult{
		use: u, Fold: fold, Instances: count, All: end.sum.events, Messages: in.messages,
		Short: u.Seconds < leastWindow, LeasesLost: end.sum.leases,
		WindowEvents: last.sum.events - first.sum.events, WindowMessages: last.sum.batches - first.sum.batches,
	}
	if u.Seconds > 0 {
		r.EventsPerSecond, r.MessagesPerSecond = r.WindowEvents/u.Seconds, r.WindowMessages/u.Seconds
	}
	if r.Short && end.sum.seconds > 0 { // a no-op consumer measures its own time precisely
		r.Whole, r.MessagesPerSecond = true, (in.messages-1)/end.sum.seconds
	}
	var each [][]int
	for i, p := range in.processes {
		each = append(each, p.CPUs)
		r.Resident = append(r.Resident, end.processes[i].Resident)
	}
	if end.sum.bytes > 0 {
		r.MessageBytes = end.sum.bytes / in.messages
	}
	r.Limit = b.limit(&u, "the instances", each)
	return r, nil
}

// stop has the instances commit and release their shards.
func (in *instances) stop() error {
	var group sync.WaitGroup
	errs := make([]error, len(in.processes))
	for i, p := range in.processes {
		group.Go(func() { errs[i] = p.Stop(syscall.SIGTERM, time.Minute) })
	}
	group.Wait()
	return errors.Join(errs...)
}
