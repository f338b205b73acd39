package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

// published is what a publisher says at the end, on a line of its own behind the line that says it is ready.
type published struct {
	Began    int64  `json:"began"` // nanoseconds since 1970
	Messages int    `json:"messages"`
	Bytes    int    `json:"bytes"`
	Last     uint64 `json:"last"` // sequence
}

const ready = "ready"

// publish is a process that has messages of a shard in memory and, at SIGUSR1, publishes their bytes to another subject: one
// after the other as a producer does, or with many in flight. It ends at SIGTERM.
func publish(args []string) error {
	var url, from, to, host string
	var shard, window int
	var first, last uint64
	flags := flag.NewFlagSet("scale publish", flag.ExitOnError)
	flags.StringVar(&url, "nats.url", "", "server")
	flags.IntVar(&shard, "shard", 0, "shard whose messages")
	flags.Uint64Var(&first, "first", 1, "sequence of the first that may be among them")
	flags.Uint64Var(&last, "last", 1, "and of the last")
	flags.StringVar(&from, "from", "", "their subject")
	flags.StringVar(&to, "to", "", "subject to publish to")
	flags.StringVar(&host, "host", hostName, "host that they are said to be of")
	flags.IntVar(&window, "window", 1, "messages in flight")
	_ = flags.Parse(args) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	begin := make(chan os.Signal, 1)
	signal.Notify(begin, syscall.SIGUSR1)
	messages, err := stored(ctx, url, shard, first, last, from, to, host)
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

// stored reads messages, which get another subject, and the name of another host of as many letters.
func stored(ctx context.Context, url string, shard int, first, last uint64, from, to, host string) (messages []*nats.Msg, err error) {
	nc, js, err := cluster.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	s, err := js.Stream(ctx, schema.StreamName(shard))
	if err != nil {
		return nil, err
	}
	for seq := first; seq <= last; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // it was taken away; who asked knows how many there are
		}
		if err != nil {
			return nil, fmt.Errorf("read message %d: %w", seq, err)
		}
		if m.Subject != from {
			continue
		}
		if n := bytes.Count(m.Data, []byte(hostName)); n != 1 || len(host) != len(hostName) {
			return nil, fmt.Errorf("message %d has the name %s %d times and not once, or %q is of another length", seq, hostName, n, host)
		}
		messages = append(messages, &nats.Msg{Subject: to, Data: bytes.Replace(m.Data, []byte(hostName), []byte(host), 1)})
	}
	if len(messages) == 0 {
		return nil, fmt.Errorf("no message of %s from %d to %d", from, first, last)
	}
	return messages, nil
}

const ackWithin = 5 * time.Second // as producers wait

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
			return 0, errors.New("a message was not acked")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return last, nil
}

// said reads what a publisher has said: nothing, that it is ready, or what it has done.
func said(p *cluster.Process) (isReady bool, done *published, err error) {
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
			return true, nil, nil // half a line
		}
	}
	return isReady, done, nil
}
