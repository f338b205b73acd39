package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
	"github.com/gputap/gputap/cmd/internal/harness/table"
	"github.com/gputap/gputap/schema"
)

// instances are processes that share the shards of a fold, and the addresses of their metrics.
type instances struct {
	fold      string
	processes []*cluster.Process
	addrs     []string
}

// counters are those of all instances of a fold together.
type counters struct {
	messages float64
	rejected float64 // of them, invalid or rejected ones
	events   float64
	missing  float64 // batches
	lag      float64 // messages
	leases   float64 // lost ones
}

// sample is what instances had done and used at one moment.
type sample struct {
	reading
	counters
}

// backlogs folds all stored messages with each number of instances, each time between two runs of as many no-op
// consumers.
func (b *bench) backlogs(ctx context.Context, fold string, counts []int) error {
	each, err := b.messagesOf(ctx, fold)
	if err != nil {
		return err
	}
	messages := 0.0
	for _, n := range each {
		messages += float64(n)
	}
	var rows [][]string
	var one, events float64 // events/s of one instance, and events of each run
	for run, count := range counts {
		before, err := b.noops(ctx, fold, count, each)
		if err != nil {
			return err
		}
		r, err := b.backlog(ctx, fold, count, messages)
		if err != nil {
			return err
		}
		after, err := b.noops(ctx, fold, count, each)
		if err != nil {
			return err
		}
		if run == 0 {
			one, events = r.events/r.seconds/float64(count), r.allEvents
		}
		if r.allEvents != events {
			return fmt.Errorf("%d instances of %s have applied %.0f events, and %d instances %.0f", count, fold,
				r.allEvents, counts[0], events)
		}
		rows = append(rows, b.row(fmt.Sprintf("run %d: %d%s", run+1, count, r.note), r, one, before, after))
	}
	table.Head(fmt.Sprintf("Fold of a backlog: %s, %d shards", fold, b.shards),
		"run: instances, a CPU each", "M events/s", "×", "messages/s", "no-op consumers before, after", "ratio",
		"CPU s per M events: instances", "nodes", "CPU of an instance, min to max", "of each node", "machine idle")
	for _, cells := range rows {
		table.Row(cells...)
	}
	return nil
}

func (b *bench) row(name string, r *folded, one, before, after float64) []string {
	if r.seconds < 1 {
		return []string{name + ", too short to measure: use more events"}
	}
	f := fmt.Sprintf
	rate, messages := r.events/r.seconds, r.messages/r.seconds
	return []string{
		name, f("%.2f", rate/1e6), f("%.2f", rate/one), f("%.0f", messages), f("%.0f, %.0f", before, after),
		f("%.2f", 2*messages/(before+after)), f("%.3f", r.processesCPU/r.events*1e6),
		f("%.3f", r.nodesCPU/r.events*1e6),
		percent(slices.Min(r.cpu)/r.seconds) + " to " + percent(slices.Max(r.cpu)/r.seconds), b.nodesBusy(&r.use),
		percent(r.idle),
	}
}

// messagesOf counts the messages of each shard that a fold reads.
func (b *bench) messagesOf(ctx context.Context, fold string) (each []int, err error) {
	wanted := reads(fold)
	for shard, s := range b.streams {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(schema.ShardSubjects(shard)))
		if err != nil {
			return nil, fmt.Errorf("count the messages of shard %d: %w", shard, err)
		}
		each = append(each, 0)
		for subject, n := range info.State.Subjects {
			if wanted(subject) {
				each[shard] += int(n)
			}
		}
	}
	return each, nil
}

// folded describes the steady part of a run: from a tenth to nine tenths of the messages.
type folded struct {
	use
	messages, events float64
	allEvents        float64
	note             string
}

// backlog folds all stored messages with so many instances.
func (b *bench) backlog(ctx context.Context, fold string, count int, messages float64) (*folded, error) {
	if err := b.purge(ctx, false); err != nil {
		return nil, err
	}
	in, err := b.startInstances(ctx, fold, count, 0)
	if err != nil {
		return nil, err
	}
	samples, err := b.follow(ctx, in, messages)
	if err != nil {
		return nil, err
	}
	i, j := window(samples, messages)
	first, last, end := &samples[i], &samples[j], &samples[len(samples)-1]
	r := &folded{
		use: first.until(last.reading), messages: last.messages - first.messages, events: last.events - first.events,
		allEvents: end.events,
	}
	if end.rejected > 0 || end.missing > 0 {
		return nil, fmt.Errorf("%s: %.0f batches were invalid or rejected, %.0f are missing", fold, end.rejected,
			end.missing)
	}
	if end.leases > 0 {
		r.note = fmt.Sprintf(", disturbed: %.0f leases lost, give the nodes more CPUs", end.leases)
	}
	b.Say("%s, %d instances: %.2f M events/s, %.0f messages/s", fold, count, r.events/r.seconds/1e6,
		r.messages/r.seconds)
	return r, in.stop()
}

// startInstances starts each instance on its CPUs, from those of the given instance on. All are announced first, so
// that none acquires the shards of one that is still starting.
func (b *bench) startInstances(ctx context.Context, fold string, count, firstCPUs int) (*instances, error) {
	addrs, err := cluster.FreeAddrs(count)
	if err != nil {
		return nil, err
	}
	in := &instances{fold: fold}
	for i, addr := range addrs {
		name := fmt.Sprintf("%s-%d-of-%d", fold, i, count)
		if err := b.announce(ctx, fold, name); err != nil {
			return nil, err
		}
		in.addrs = append(in.addrs, addr)
		in.processes = append(in.processes, &cluster.Process{
			Name: name, CPUs: b.instanceCPUs[(firstCPUs+i)%len(b.instanceCPUs)], Args: []string{
				b.Program("gputap-" + fold), "--nats.url", b.urls(), "--metrics.addr", addr,
				"--consumer.instance", name, "--display-interval", "0",
			},
		})
	}
	for _, p := range in.processes {
		if err := b.Start(p); err != nil {
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
	_, err = kv.PutString(ctx, "m."+schema.Token(fold)+"."+instance, fmt.Sprintf(`{"instance":%q}`, instance))
	return err
}

// sample reads the counters of all instances at once, and then their usage.
func (b *bench) sample(in *instances) (s sample, err error) {
	pages, errs := make([]scrape.Page, len(in.addrs)), make([]error, len(in.addrs))
	var group sync.WaitGroup
	for i, addr := range in.addrs {
		group.Go(func() { pages[i], errs[i] = scrape.Get(addr, "gputap_consumer_") })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	for _, page := range pages {
		s.messages += page.Sum("gputap_consumer_batches_total")
		s.rejected += page.Sum("gputap_consumer_batches_total", "invalid", "refused")
		s.events += page.Sum("gputap_consumer_events_total")
		s.missing += page.Sum("gputap_consumer_gap_batches_total")
		s.lag += page.Sum("gputap_consumer_lag_messages")
		s.leases += page.Sum("gputap_consumer_leases_lost_total")
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
func (b *bench) follow(ctx context.Context, in *instances, messages float64) (list []sample, err error) {
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
		switch {
		case err == nil && s.messages >= messages:
			return list, nil
		case s.messages > before:
			moved, before = time.Now(), s.messages
		case time.Since(moved) > stallLimit:
			return nil, fmt.Errorf("%s makes no progress at %.0f of %.0f messages: see its log in %s", in.fold,
				s.messages, messages, b.Dir)
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
	for first < last && list[first].messages < messages/10 {
		first++
	}
	for last > first && list[last].messages > messages*9/10 {
		last--
	}
	return first, last
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
