package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// raw is a process that takes the messages of its part of the shards as consumer does, whole shards where a fold wants several kinds, and
// looks at none. It shows how many of the fold's there were as a fold does, and what they weighed.
func raw(args []string) error {
	var urls, fold, addr string
	var shards, part, of int
	flags := flag.NewFlagSet("scale raw", flag.ExitOnError)
	flags.StringVar(&urls, "nats.url", "", "servers")
	flags.StringVar(&fold, "fold", "", "whose kinds")
	flags.StringVar(&addr, "metrics.addr", "", "where it shows its counters")
	flags.IntVar(&shards, "shards", 1, "shards, at least 1")
	flags.IntVar(&part, "part", 0, "which part of the shards it takes")
	flags.IntVar(&of, "of", 1, "in how many parts they are taken, at most as many as shards")
	_ = flags.Parse(args) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, js, err := cluster.Connect(ctx, urls)
	if err != nil {
		return err
	}
	defer nc.Close()
	var messages, bytes atomic.Uint64
	var first, last atomic.Int64 // when messages came
	owned := (shards - part + of - 1) / of
	for shard := part; shard < shards; shard += of {
		wanted, config := filters(fold, shard), jetstream.OrderedConsumerConfig{}
		if len(wanted) == 1 {
			config.FilterSubjects = wanted
		}
		var ordered jetstream.Consumer
		if err := cluster.Until(ctx, time.Minute, func() (err error) {
			ordered, err = js.OrderedConsumer(ctx, schema.StreamName(shard), config)
			return err
		}); err != nil {
			return err
		}
		if _, err := ordered.Consume(func(m jetstream.Msg) {
			if !takes(wanted, m.Subject()) {
				return
			}
			now := time.Now().UnixNano()
			first.CompareAndSwap(0, now)
			last.Store(now)
			messages.Add(1)
			bytes.Add(uint64(len(m.Data())))
		}, jetstream.PullMaxBytes(max(min(pullBytes, allPullBytes/owned), leastPull)), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat)); err != nil {
			return err
		}
	}
	http.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s{result=\"ok\"} %d\n%s %d\n%s %g\n", metricBatches, messages.Load(), metricRawBytes, bytes.Load(),
			metricRawSeconds, time.Duration(last.Load()-first.Load()).Seconds())
	})
	server := &http.Server{Addr: addr, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// As package consumer reads.
const (
	pullBytes     = 8 << 20
	allPullBytes  = 32 << 20
	leastPull     = 1 << 20
	pullExpiry    = 5 * time.Second
	pullHeartbeat = time.Second
)

// takes tells a fold's messages from what else a shard holds by the last word, as package consumer does.
func takes(wanted []string, subject string) bool {
	word := subject[strings.LastIndexByte(subject, '.'):]
	return slices.ContainsFunc(wanted, func(filter string) bool { return strings.HasSuffix(filter, word) })
}

// filters are the subjects that a fold reads of one shard.
func filters(fold string, shard int) []string {
	list := []string{schema.KindSubjects(shard, schema.KindHost)}
	for _, kind := range kinds[fold] {
		if s := schema.KindSubjects(shard, kind); s != list[0] {
			list = append(list, s)
		}
	}
	return list
}
