package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

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
