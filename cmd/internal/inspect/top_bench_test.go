package inspect

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/screen"
	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
)

// programFunc is a consumer program.
type programFunc func(ctx context.Context, p *app.Process) error

func (f programFunc) run(ctx context.Context, p *app.Process) error { return f(ctx, p) }

// BenchmarkTop refreshes the screen of a simulated fleet: four folds, 16 shards, while the hosts publish 20,000 events
// a second. One refresh asks the folds and draws a screen of 160 by 50; with a process open it also asks for that
// process.
func BenchmarkTop(b *testing.B) {
	for _, hosts := range []int{200, 1000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) { benchmarkTop(b, hosts) })
	}
}

func benchmarkTop(b *testing.B, hosts int) {
	f := newFleet(b, 16)
	f.consume("leak", leakProgram{})
	f.consume("launch", programFunc(func(ctx context.Context, p *app.Process) error {
		return fold.Launch.Run(ctx, p, func(io.Writer, []*launch.Histogram) {})
	}))
	f.consume("bandwidth", programFunc(func(ctx context.Context, p *app.Process) error {
		return fold.Bandwidth.Run(ctx, p, func(io.Writer, []*bandwidth.Meter) {})
	}))
	f.consume("anomaly", programFunc(func(ctx context.Context, p *app.Process) error {
		return fold.Anomaly.Run(ctx, p, func(io.Writer, []*fold.Anomalies) {})
	}))
	f.simulate(hosts)
	p := &app.Process{Name: "gputap", Metrics: prometheus.NewRegistry(), Stdout: io.Discard, Stderr: io.Discard,
		Log: slog.New(slog.DiscardHandler)}
	cmd := &cobra.Command{Use: "top"}
	source := &fleetSource{question: newQuestion(p, cmd)}
	f.check(cmd.ParseFlags([]string{"--nats.url", f.url}))
	f.check(source.dial(b.Context()))
	defer source.close()
	options := screen.Options{Sort: "live", Now: time.Now}
	subject := f.everyHost(source, hosts)
	measure := func(name string, once func()) {
		b.Run(name, func(b *testing.B) {
			var worst time.Duration
			for b.Loop() {
				began := time.Now()
				once()
				worst = max(worst, time.Since(began))
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
	measure("processes", func() {
		incomplete, err := screen.Once(b.Context(), source, options, 160, 50, io.Discard)
		f.check(err)
		f.check(incomplete)
	})
	measure("process", func() {
		p, err := source.Process(b.Context(), subject)
		f.check(err)
		if p == nil || len(p.Largest) == 0 {
			b.Fatalf("no allocations of %+v", subject)
		}
	})
}

// simulate publishes events of so many hosts until the benchmark ends.
func (f *simFleet) simulate(hosts int) {
	nc, err := nats.Connect(f.url)
	f.check(err)
	s, err := simulate.New(simulate.Options{Conns: []*nats.Conn{nc}, Cluster: "sim", Hosts: hosts, Rate: 20_000,
		BatchAge: time.Second, Drain: time.Second, Log: slog.New(slog.DiscardHandler)})
	f.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.tb.Cleanup(func() {
		cancel()
		f.check(<-done)
		nc.Close()
	})
}

// everyHost waits until the consumers know every host, and returns one process that holds memory.
func (f *simFleet) everyHost(source *fleetSource, hosts int) screen.Subject {
	f.tb.Helper()
	for until := time.Now().Add(time.Minute); ; {
		o, err := source.Overview(f.tb.Context())
		if err == nil && o.Hosts == hosts && len(o.Processes) >= hosts && o.Processes[0].LiveBytes > 0 {
			p := o.Processes[0]
			return screen.Subject{Cluster: p.Cluster, Host: p.Host, PID: p.PID, Start: p.Start}
		}
		if time.Now().After(until) {
			f.tb.Fatalf("not every host is heard of: %v", err)
		}
	}
}
