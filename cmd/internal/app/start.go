package app

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

// Start does the first steps of every daemon: it configures the log, serves /metrics and connects to NATS. stop ends
// both.
func (p *Process) Start(ctx context.Context, n config.NATS, m config.Metrics, l config.Log) (js jetstream.JetStream,
	stop func(), err error) {
	p.Drains()
	p.Logging(l)
	_, stopServing, err := p.Serve(ctx, m.Addr)
	if err != nil {
		return nil, nil, err
	}
	nc, js, err := p.Connect(n)
	if err != nil {
		stopServing()
		return nil, nil, err
	}
	return js, func() {
		nc.Close()
		stopServing()
	}, nil
}

// Report writes a report to standard output at every interval, and a last one when stop is called. It uses its own
// goroutine, so that a slow terminal does not delay events. With interval 0 it writes nothing.
func (p *Process) Report(interval time.Duration, report func(io.Writer)) (stop func()) {
	if interval <= 0 {
		return func() {}
	}
	end := Every(interval, func() { report(p.Stdout) })
	return func() {
		end()
		report(p.Stdout)
	}
}

// Every calls do at every interval, in a goroutine that ends when stop is called.
func Every(interval time.Duration, do func()) (stop func()) {
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				do()
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		group.Wait()
	}
}
