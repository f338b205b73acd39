package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// noop is the process of a no-op consumer. It reads its part of the shards as package consumer does: whole shards if
// the fold reads several kinds. It decodes nothing, and serves the number and size of the fold's messages as metrics.
func noop(ctx context.Context, args []string) error {
	var urls, name, addr string
	var shards, part, of int
	flags := flag.NewFlagSet("scale noop", flag.ExitOnError)
	flags.StringVar(&urls, "nats.url", "", "URLs of the servers")
	flags.StringVar(&name, "fold", "", "fold whose kinds are read")
	flags.StringVar(&addr, "metrics.addr", "", "address of its metrics")
	flags.IntVar(&shards, "shards", 1, "number of shards")
	flags.IntVar(&part, "part", 0, "part of the shards to read")
	flags.IntVar(&of, "of", 1, "number of parts, at most the number of shards")
	_ = flags.Parse(args) // exits on errors
	nc, js, err := cluster.Connect(ctx, urls)
	if err != nil {
		return err
	}
	defer nc.Close()
	var messages, bytes atomic.Uint64
	var first, last atomic.Int64 // when messages arrived
	owned := (shards - part + of - 1) / of
	for shard := part; shard < shards; shard += of {
		wanted, config := filters(name, shard), jetstream.OrderedConsumerConfig{}
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
			if !matches(wanted, m.Subject()) {
				return
			}
			now := time.Now().UnixNano()
			first.CompareAndSwap(0, now)
			last.Store(now)
			messages.Add(1)
			bytes.Add(uint64(len(m.Data())))
		}, jetstream.PullMaxBytes(max(min(pullBytes, allPullBytes/owned), leastPull)),
			jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat)); err != nil {
			return err
		}
	}
	http.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s{result=\"ok\"} %d\n%s %d\n%s %g\n", metricBatches, messages.Load(),
			metricNoopBytes, bytes.Load(), metricNoopSeconds, time.Duration(last.Load()-first.Load()).Seconds())
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
