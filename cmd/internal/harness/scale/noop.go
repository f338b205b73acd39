package main

import (
	"context"
	"fmt"
	"os"
	"slices"
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
	nc, js, err := cluster.Connect(ctx, urls)
	if err != nil {
		return err
	}
	defer nc.Close()
	arrived := make(chan struct{}, 1024)
	owned := (shards - part + parts - 1) / parts
	for shard := part; shard < shards; shard += parts {
		wanted, config := filters(name, shard), jetstream.OrderedConsumerConfig{}
		if len(wanted) == 1 {
			config.FilterSubjects = wanted
		}
		ordered, err := js.OrderedConsumer(ctx, schema.StreamName(shard), config)
		if err != nil {
			return err
		}
		if _, err := ordered.Consume(func(m jetstream.Msg) {
			if matches(wanted, m.Subject()) {
				arrived <- struct{}{}
			}
		}, jetstream.PullMaxBytes(max(min(pullBytes, allPullBytes/owned), leastPull)),
			jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat)); err != nil {
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

// The pull options of package consumer.
const (
	pullBytes     = 8 << 20
	allPullBytes  = 32 << 20
	leastPull     = 1 << 20
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
)

// matches selects the fold's messages of a shard by the last token of the subject, as package consumer does.
func matches(wanted []string, subject string) bool {
	kind := subject[strings.LastIndexByte(subject, '.'):]
	return slices.ContainsFunc(wanted, func(filter string) bool { return strings.HasSuffix(filter, kind) })
}

// filters returns the subjects that a fold reads of one shard.
func filters(name string, shard int) []string {
	list := []string{schema.KindSubjects(shard, schema.KindHost)}
	for _, kind := range fold.ByName(name).Kinds() {
		if s := schema.KindSubjects(shard, kind); s != list[0] {
			list = append(list, s)
		}
	}
	return list
}

// noops has no-op consumers read the messages of each shard, and returns how many they read a second together.
func (b *bench) noops(ctx context.Context, fold string, count int, messages []int) (perSecond float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var processes []*cluster.Process
	for i := range count {
		part := 0
		for shard := i; shard < b.shards; shard += count {
			part += messages[shard]
		}
		name := fmt.Sprintf("noop-%s-%d-of-%d", fold, i, count)
		p := &cluster.Process{
			Name: name, CPUs: b.instanceCPUs[i%len(b.instanceCPUs)], Out: b.Path(name + ".out"),
			Args: []string{self, "noop", b.urls(), fold, fmt.Sprint(b.shards), fmt.Sprint(i), fmt.Sprint(count),
				fmt.Sprint(part)},
		}
		processes = append(processes, p)
		if err := b.start(p); err != nil {
			return 0, err
		}
	}
	for _, p := range processes {
		if err := b.wait(ctx, p); err != nil {
			return 0, err
		}
		text, err := os.ReadFile(p.Out)
		var rate float64
		if err == nil {
			_, err = fmt.Sscan(string(text), &rate)
		}
		if err != nil {
			return 0, fmt.Errorf("read the output of %s: %w", p.Name, err)
		}
		perSecond += rate
	}
	b.Say("%s, %d no-op consumers: %.0f messages/s", fold, count, perSecond)
	return perSecond, nil
}
