package answer_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/naive"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

// published is a stream with the events of a fleet.
type published struct {
	js  jetstream.JetStream
	log naive.Log
}

// publish publishes the events of three hosts in two clusters. One of them reboots.
func publish(t *testing.T, seed uint64, shards int) *published {
	t.Helper()
	p := &published{js: bustest.Connect(t)}
	must(t, bus.EnsureStreams(t.Context(), p.js, bus.StreamOptions{Shards: shards}))
	rng := rand.New(rand.NewPCG(seed, 11))
	send := func(h *schema.Header, message []byte) {
		shard := schema.Shard(h.Cluster, h.Host, shards)
		subject := schema.Subject(shard, h.Cluster, h.Host, h.Kind)
		p.store(t, shard, subject, message)
		switch rng.IntN(60) {
		case 0:
			p.store(t, shard, subject, message[:len(message)/2])
		case 1:
			p.store(t, shard, schema.Subject(shard, h.Cluster, "other", h.Kind), message)
		case 2:
			p.store(t, shard, subject, message) // a repetition
		}
	}
	for _, m := range []struct {
		cluster, host, boot string
		offset              int64
	}{{"east", "a", "1", 0}, {"east", "b", "1", 7e9}, {"west", "a", "1", 3e9}, {"east", "b", "2", 900e9}} {
		newMachine(t, rng, m.cluster, m.host, m.boot, m.offset, send).run(1500)
	}
	return p
}

// store publishes a message, and tells the log what NATS says about it.
func (p *published) store(t *testing.T, shard int, subject string, data []byte) {
	t.Helper()
	ack, err := p.js.Publish(t.Context(), subject, data)
	must(t, err)
	stream, err := p.js.Stream(t.Context(), ack.Stream)
	must(t, err)
	m, err := stream.GetMsg(t.Context(), ack.Sequence)
	must(t, err)
	p.log.Add(naive.Message{Shard: shard, Sequence: m.Sequence, Subject: m.Subject, Stored: m.Time, Data: m.Data})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns a reader that has given all messages of a shard to a fold.
func (p *published) read(t *testing.T, shard int, f consumer.Fold) *consumer.Reader {
	t.Helper()
	r := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, p.js, f, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stream, err := p.js.Stream(ctx, schema.StreamName(shard))
	must(t, err)
	must(t, r.WaitFor(ctx, stream.CachedInfo().State.LastSeq))
	cancel()
	must(t, <-done)
	return r
}

// snapshot reads the stream with all folds, as gputap run does.
func (p *published) snapshot(t *testing.T) *report.Snapshot {
	t.Helper()
	s := report.New(time.Now())
	s.Watches([]string{"memory", "launch", "copy", "sync"}, true)
	folds := []consumer.Fold{fold.MemoryOfRun(config.Leak{Mode: "off"}, nil)}
	for _, e := range fold.All() {
		if e.Name() != "leak" {
			folds = append(folds, e.NewUnlimited())
		}
	}
	folds = append(folds, coverage.New())
	var readers []*consumer.Reader
	for _, f := range folds {
		r := p.read(t, 0, f)
		readers = append(readers, r)
		for _, part := range fold.Parts(f) {
			s.Add(part, r)
		}
	}
	s.AddReaders(readers)
	s.Sort()
	return s
}

// notCounted are the keys that the naive count leaves out, with what compares them.
var notCounted = []string{
	"/time", "/final", // when the report was made
	"/alerts",                                                 // TestAlertsEqualNaiveCount
	"/processes/*/verdicts/*/why", "/processes/*/torch/*/why", // sentences; TestAlertsEqualNaiveCount has their numbers
}

// unordered are lists without an order, or whose order among equals is not defined.
var unordered = map[string]string{"/processes/*/pools": "handle", "/processes/*/verdicts": "gpu",
	"/processes/*/top_kernels/*/shapes": "grid"}

// TestReportEqualsNaiveCount compares every key of a report with a naive count over the same events. It stands here
// because it shares these events with the tests of a fleet.
func TestReportEqualsNaiveCount(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		p := publish(t, seed, 1)
		same(t, fmt.Sprint("seed ", seed), p.snapshot(t), p.log.Report(true), notCounted, unordered)
	}
}
