package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
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

// published is the result that a raw publisher prints.
type published struct {
	Seconds  float64 `json:"seconds"` // from the first publish to the last ack
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`
}

// publish is the process of a raw publisher: `scale publish URL FIRST FROM TO WINDOW`. It loads the messages of a
// subject, from a sequence on, into memory and logs "ready". At SIGUSR1 it publishes their bytes to another subject,
// with so many in flight: a producer has one.
func publish(ctx context.Context, args []string) error {
	var url, from, to string
	var first uint64
	var window int
	if _, err := fmt.Sscan(strings.Join(args, " "), &url, &first, &from, &to, &window); err != nil {
		return err
	}
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	js, err := cluster.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	messages, err := loadMessages(ctx, js, first, from, to, hostName)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "ready")
	select {
	case <-begin:
	case <-ctx.Done():
		return ctx.Err()
	}
	done, began := published{Messages: float64(len(messages))}, time.Now()
	if err := publishAll(ctx, js.Conn(), messages, window); err != nil {
		return err
	}
	done.Seconds = time.Since(began).Seconds()
	for _, m := range messages {
		done.Bytes += float64(len(m.Data))
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

// loadMessages reads the messages of a subject, from a sequence on, and gives them another subject, and another host
// name of the same length.
func loadMessages(ctx context.Context, js jetstream.JetStream, first uint64, from, to, host string) (
	messages []*nats.Msg, err error,
) {
	selected := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{from}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
	}
	err = cluster.EachMessage(ctx, js, schema.StreamName(0), selected, func(m jetstream.Msg) error {
		if n := bytes.Count(m.Data(), []byte(hostName)); n != 1 || len(host) != len(hostName) {
			return fmt.Errorf("put %s into a batch that contains the host name %s %d times, want once",
				host, hostName, n)
		}
		data := bytes.Replace(m.Data(), []byte(hostName), []byte(host), 1)
		messages = append(messages, &nats.Msg{Subject: to, Data: data})
		return nil
	})
	if err == nil && messages == nil {
		err = fmt.Errorf("stream %s has no message of %s from %d on", schema.StreamName(0), from, first)
	}
	return messages, err
}

const ackWithin = 5 * time.Second // as producers wait

// publishAll publishes messages in order, with so many in flight.
func publishAll(ctx context.Context, nc *nats.Conn, messages []*nats.Msg, window int) error {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window),
		jetstream.WithPublishAsyncTimeout(ackWithin))
	if err != nil {
		return err
	}
	if window == 1 {
		for _, m := range messages {
			if _, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0)); err != nil {
				return err
			}
		}
		return nil
	}
	var futures []jetstream.PubAckFuture
	for _, m := range messages {
		future, err := js.PublishMsgAsync(m, jetstream.WithStallWait(ackWithin), jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		futures = append(futures, future)
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// publishRaw is a pass of a raw publisher, whose messages are then purged.
func (h *hostRun) publishRaw(ctx context.Context, window int) (*pass, error) {
	to := strings.TrimSuffix(h.subject(hostName), h.kind.String()) + "raw"
	name := fmt.Sprintf("publish-%d-window-%d", h.first, window)
	p := &cluster.Process{Name: name, CPUs: h.simulatorCPUs, Out: h.Path(name + ".out"), Args: []string{
		os.Args[0], "publish", h.url, fmt.Sprint(h.first), h.subject(hostName), to, fmt.Sprint(window),
	}}
	_ = os.Remove(h.Path(name + ".log")) // an earlier pass of this name was ready too
	if err := h.Start(p); err != nil {
		return nil, err
	}
	for text := []byte{}; !strings.HasPrefix(string(text), "ready"); text, _ = os.ReadFile(p.Log()) {
		if err := errors.Join(cluster.Sleep(ctx, quietTime/10), cluster.CheckRunning(p)); err != nil {
			return nil, err
		}
	}
	u, err := h.using(func() error {
		p.Signal(syscall.SIGUSR1)
		return p.Wait(ctx)
	}, p)
	if err != nil {
		return nil, err
	}
	result := &pass{use: u, events: hostRound}
	if err := p.Result(ctx, &result.published); err != nil {
		return nil, err
	}
	return result, h.stream.Purge(ctx, jetstream.WithPurgeSubject(to))
}
