package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// published is the result that a publisher prints at the end, on the line after "ready".
type published struct {
	Began    int64  `json:"began"` // nanoseconds since 1970
	Messages int    `json:"messages"`
	Bytes    int    `json:"bytes"`
	Last     uint64 `json:"last"` // sequence
}

const ready = "ready"

// publish is the process of a raw publisher. It loads messages of a shard into memory and, at SIGUSR1, publishes their
// bytes to another subject: one after the other as a producer does, or with many in flight. It ends at SIGTERM.
func publish(ctx context.Context, args []string) error {
	var url, from, to, host string
	var shard, window int
	var first, last uint64
	flags := flag.NewFlagSet("scale publish", flag.ExitOnError)
	flags.StringVar(&url, "nats.url", "", "URL of the server")
	flags.IntVar(&shard, "shard", 0, "shard of the messages")
	flags.Uint64Var(&first, "first", 1, "first sequence")
	flags.Uint64Var(&last, "last", 1, "last sequence")
	flags.StringVar(&from, "from", "", "subject of the messages")
	flags.StringVar(&to, "to", "", "subject to publish to")
	flags.StringVar(&host, "host", hostName, "host name to put into the messages")
	flags.IntVar(&window, "window", 1, "messages in flight")
	_ = flags.Parse(args) // exits on errors
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	messages, err := loadMessages(ctx, url, cluster.Range{
		Stream: schema.StreamName(shard), First: first, Last: last, Subject: from,
	}, to, host)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(url, nats.CustomInboxPrefix(inbox+".raw"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window))
	if err != nil {
		return err
	}
	fmt.Println(ready)
	select {
	case <-begin:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := published{Began: time.Now().UnixNano(), Messages: len(messages)}
	if window == 1 {
		done.Last, err = oneByOne(ctx, js, messages)
	} else {
		done.Last, err = manyInFlight(ctx, js, messages)
	}
	if err != nil {
		return err
	}
	for _, m := range messages {
		done.Bytes += len(m.Data)
	}
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// loadMessages reads the messages of a range and gives them another subject, and another host name of the same length.
func loadMessages(ctx context.Context, url string, r cluster.Range, to, host string) (messages []*nats.Msg, err error) {
	nc, js, err := cluster.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if len(host) != len(hostName) {
		return nil, fmt.Errorf("host name %q must be as long as %q", host, hostName)
	}
	err = cluster.EachMessage(ctx, js, r, func(m jetstream.Msg) error {
		if n := bytes.Count(m.Data(), []byte(hostName)); n != 1 {
			return fmt.Errorf("the batch contains the host name %s %d times, want once", hostName, n)
		}
		data := bytes.Replace(m.Data(), []byte(hostName), []byte(host), 1)
		messages = append(messages, &nats.Msg{Subject: to, Data: data})
		return nil
	})
	if err == nil && len(messages) == 0 {
		err = fmt.Errorf("stream %s has no message of %s from %d to %d", r.Stream, r.Subject, r.First, r.Last)
	}
	return messages, err
}

const ackWithin = 5 * time.Second // like producers

func oneByOne(ctx context.Context, js jetstream.JetStream, messages []*nats.Msg) (last uint64, err error) {
	publish := func(m *nats.Msg) error {
		ctx, cancel := context.WithTimeout(ctx, ackWithin)
		defer cancel()
		ack, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err == nil {
			last = ack.Sequence
		}
		return err
	}
	for _, m := range messages {
		if err := publish(m); err != nil {
			return 0, err
		}
	}
	return last, nil
}

func manyInFlight(ctx context.Context, js jetstream.JetStream, messages []*nats.Msg) (last uint64, err error) {
	futures := make([]jetstream.PubAckFuture, 0, len(messages))
	for _, m := range messages {
		future, err := js.PublishMsgAsync(m, jetstream.WithStallWait(ackWithin), jetstream.WithRetryAttempts(0))
		if err != nil {
			return 0, err
		}
		futures = append(futures, future)
	}
	for _, future := range futures {
		select {
		case ack := <-future.Ok():
			last = max(last, ack.Sequence)
		case err := <-future.Err():
			return 0, err
		case <-time.After(ackWithin):
			return 0, fmt.Errorf("a message was not acked within %s", ackWithin)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return last, nil
}

// readPublisher reads the output of a publisher so far: nothing, "ready", or also its result.
func readPublisher(p *cluster.Process) (isReady bool, done *published, err error) {
	text, err := os.Open(p.Out)
	if err != nil {
		return false, nil, err
	}
	defer text.Close()
	lines := bufio.NewScanner(text)
	isReady = lines.Scan() && lines.Text() == ready
	if isReady && lines.Scan() {
		done = &published{}
		if err := json.Unmarshal(lines.Bytes(), done); err != nil {
			return true, nil, nil // the line is not complete yet
		}
	}
	return isReady, done, nil
}
