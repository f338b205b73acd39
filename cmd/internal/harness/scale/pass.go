package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
	"github.com/gputap/gputap/schema"
)

const (
	quietTime = 300 * time.Millisecond // without an ack; then the producer's metrics are read
	passLimit = 2 * time.Minute
)

// pass is one measurement of the producer or of a raw publisher.
type pass struct {
	use
	published
	events float64
}

func (p *pass) rate() float64 { return p.events / p.Seconds }

func (h *hostRun) pass(ctx context.Context, window int) (*pass, error) {
	if window == 0 {
		return h.trace(ctx)
	}
	return h.publishRaw(ctx, window)
}

// trace is a pass of the producer, which is stopped while a program makes calls, and then continues.
func (h *hostRun) trace(ctx context.Context) (*pass, error) {
	before, err := h.page()
	if err != nil {
		return nil, err
	}
	messages, last, err := h.storedOf(ctx)
	if err != nil {
		return nil, err
	}
	h.producer.Signal(syscall.SIGSTOP)
	if err := h.call(ctx); err != nil {
		return nil, err
	}
	var began time.Time
	var after scrape.Page
	u, err := h.using(func() (err error) {
		began = time.Now()
		h.producer.Signal(syscall.SIGCONT)
		after, err = h.done(ctx, before, began)
		return err
	}, h.producer)
	if err != nil {
		return nil, err
	}
	all, _, err := h.storedOf(ctx)
	if err != nil {
		return nil, err
	}
	h.first, h.called = last+1, h.called+hostRound
	const bytes = "gputap_producer_published_bytes_total"
	return &pass{use: u, events: hostRound, published: published{
		Seconds:  h.lastAck.Load().Sub(began).Seconds(),
		Messages: all - messages, Bytes: after.Sum(bytes) - before.Sum(bytes),
	}}, nil
}

// storedOf returns how many messages of the producer's kind are stored, and the last sequence of the stream.
func (h *hostRun) storedOf(ctx context.Context) (messages float64, last uint64, err error) {
	subject := h.subject(hostName)
	info, err := h.stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, 0, fmt.Errorf("count messages: %w", err)
	}
	return float64(info.State.Subjects[subject]), info.State.LastSeq, nil
}

// call runs a program that calls the stub, on the producer's CPUs.
func (h *hostRun) call(ctx context.Context) error {
	w := &cluster.Process{
		Name: workload, CPUs: h.simulatorCPUs,
		Env: []string{"LD_LIBRARY_PATH=" + filepath.Dir(h.stub())},
		Args: []string{
			filepath.Join(h.stubs, workload), "bench", h.function, "--count", strconv.Itoa(hostRound / len(h.ops)),
		},
	}
	if err := h.Start(w); err != nil {
		return err
	}
	return w.Wait(ctx)
}

// done waits until the producer has published everything. It reads the producer's metrics only after no ack has arrived
// for a while, because a page costs the producer time.
func (h *hostRun) done(ctx context.Context, before scrape.Page, began time.Time) (scrape.Page, error) {
	for {
		if err := errors.Join(cluster.Sleep(ctx, quietTime/10), cluster.CheckRunning(h.producer)); err != nil {
			return nil, err
		}
		if time.Since(began) < quietTime || time.Since(*h.lastAck.Load()) < quietTime {
			continue
		}
		page, err := h.page()
		if err != nil {
			return nil, err
		}
		const total = "gputap_producer_events_total"
		events := page.Sum(total, h.ops...) - before.Sum(total, h.ops...)
		queued, lost := page.Sum("gputap_producer_spool_batches"), page.Sum("gputap_producer_events_lost_total")
		switch {
		case lost > 0:
			return nil, fmt.Errorf("the producer lost %.0f events: see its log in %s", lost, h.Dir)
		case events == hostRound && queued == 0:
			return page, nil
		case time.Since(began) > passLimit:
			return nil, fmt.Errorf("the producer has read %.0f of %d events, and %.0f batches are queued", events,
				hostRound, queued)
		}
	}
}

// watchAcks returns the time at which the producer received its last ack: a separate subscriber receives every ack that
// the producer receives. A message's own timestamp would not do: the leader sets it before the message is replicated.
func watchAcks(nc *nats.Conn) (*atomic.Pointer[time.Time], error) {
	last := &atomic.Pointer[time.Time]{}
	last.Store(&time.Time{})
	_, err := nc.Subscribe("_INBOX."+hostCluster+".>", func(m *nats.Msg) {
		if now := time.Now(); bytes.Contains(m.Data, []byte(schema.StreamName(0))) {
			last.Store(&now)
		}
	})
	if err := errors.Join(err, nc.Flush()); err != nil {
		return nil, fmt.Errorf("watch acks: %w", err)
	}
	return last, nil
}
