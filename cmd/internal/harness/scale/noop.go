package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// noop is the process of a no-op consumer: `scale noop URLS FOLD SHARDS PART PARTS MESSAGES`. It reads its part of the
// shards as package consumer does, until it has read so many of the fold's messages, and decodes nothing. It prints how
// many of them it read a second, without the first and the last tenth.
func noop(ctx context.Context, args []string) error {
	var urls, name string
	var shards, part, parts, messages int
	if _, err := fmt.Sscan(strings.Join(args, " "), &urls, &name, &shards, &part, &parts, &messages); err != nil {
		return err
	}
	js, err := cluster.Connect(ctx, urls)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	arrived := make(chan struct{}, 1024)
	owned := (shards - part + parts - 1) / parts
	wanted := reads(name)
	for shard := part; shard < shards; shard += parts {
		ordered, err := js.OrderedConsumer(ctx, schema.StreamName(shard), jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		if _, err := ordered.Consume(func(m jetstream.Msg) {
			if wanted(m.Subject()) {
				arrived <- struct{}{}
			}
		}, jetstream.PullMaxBytes(max(min(pullBytes, allPullBytes/owned), leastPull)),
			jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second)); err != nil {
			return err
		}
	}
	first, last := messages/10, messages-messages/10
	var began, ended time.Time
	for n := range messages {
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch n {
		case first:
			began = time.Now()
		case last - 1:
			ended = time.Now()
		}
	}
	fmt.Println(float64(last-1-first) / ended.Sub(began).Seconds())
	return nil
}

// The pull sizes of package consumer.
const (
	pullBytes    = 8 << 20
	allPullBytes = 32 << 20
	leastPull    = 1 << 20
)

// reads returns a function that selects the messages that a fold reads, by the last token of the subject.
func reads(name string) func(subject string) bool {
	wanted := map[string]bool{schema.KindHost.String(): true}
	for _, kind := range fold.ByName(name).Kinds() {
		wanted[kind.String()] = true
	}
	return func(subject string) bool { return wanted[subject[strings.LastIndexByte(subject, '.')+1:]] }
}

// noops has no-op consumers read the messages of each shard, and returns how many they read a second together.
func (b *bench) noops(ctx context.Context, fold string, count int, messages []int) (perSecond float64, err error) {
	var processes []*cluster.Process
	for i := range count {
		part := 0
		for shard := i; shard < b.shards; shard += count {
			part += messages[shard]
		}
		name := fmt.Sprintf("noop-%s-%d-of-%d", fold, i, count)
		p := &cluster.Process{
			Name: name, CPUs: b.instanceCPUs[i%len(b.instanceCPUs)], Out: b.Path(name + ".out"),
			Args: []string{os.Args[0], "noop", b.urls(), fold, fmt.Sprint(b.shards), fmt.Sprint(i), fmt.Sprint(count),
				fmt.Sprint(part)},
		}
		processes = append(processes, p)
		if err := b.Start(p); err != nil {
			return 0, err
		}
	}
	for _, p := range processes {
		var rate float64
		if err := p.Result(ctx, &rate); err != nil {
			return 0, err
		}
		perSecond += rate
	}
	b.Say("%s, %d no-op consumers: %.0f messages/s", fold, count, perSecond)
	return perSecond, nil
}
