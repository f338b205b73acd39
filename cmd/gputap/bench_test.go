//go:build bpf

package main

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	eventbus "github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/producer"
	"github.com/gputap/gputap/schema"
)

// timing is the leak fold, which also notes how old each event is once it is folded.
type timing struct {
	*leak.Tracker
	ages []float64 // ms
}

func (f *timing) Apply(b *schema.Batch) error {
	err := f.Tracker.Apply(b)
	for i := range b.Events {
		f.ages = append(f.ages, float64(time.Since(b.Wall(schema.KTime(b.Time().At(i)))))/1e6)
	}
	return err
}

// BenchmarkCallToFold measures, with default settings at 1,000 calls/s, the time from the entry of a
// call to the fold that has it, which the next scrape shows.
func BenchmarkCallToFold(b *testing.B) {
	library, err := filepath.Abs("../../bin/stub/libcuda.so.1")
	if err != nil {
		b.Fatal(err)
	}
	var ages []float64
	for b.Loop() {
		ages = append(ages, callToFold(b, library)...)
	}
	slices.Sort(ages)
	b.ReportMetric(ages[len(ages)/2], "p50-ms")
	b.ReportMetric(ages[len(ages)*99/100], "p99-ms")
	b.ReportMetric(0, "ns/op")
}

func callToFold(b *testing.B, library string) []float64 {
	quiet := slog.New(slog.DiscardHandler)
	bus, err := embedded.Start(b.TempDir(), config.Embedded{}, quiet)
	if err != nil {
		b.Fatal(err)
	}
	defer bus.Stop()
	nc, js, err := bus.Connect("bench")
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	if err := eventbus.EnsureStreams(b.Context(), js, eventbus.StreamOptions{Shards: 1}); err != nil {
		b.Fatal(err)
	}
	cfg := config.DefaultProducer()
	cfg.Libraries = []string{library}
	agent, err := producer.New(cfg, "bench", js, quiet)
	if err != nil {
		b.Fatal(err)
	}
	fold := &timing{Tracker: leak.New(leak.Config{})}
	folding := consumer.NewReader(consumer.ReaderOptions{}, js, fold, quiet)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 2)
	go func() { ended <- folding.Run(ctx) }()
	<-folding.Ready()
	go func() { ended <- agent.Run(ctx) }()
	if out, err := exec.Command("../../bin/workload", "rate", "--rate", "1000", "--seconds",
		"5").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
	return fold.ages
}
