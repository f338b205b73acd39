package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// pass is one measurement of the producer or of a raw publisher.
type pass struct {
	use
	Round    int     `json:"round"`
	Window   int     `json:"window"`       // messages in flight of a raw publisher; 0: the producer
	Took     float64 `json:"took_seconds"` // from SIGCONT or the first publish to the last ack
	Events   float64 `json:"events"`
	Messages float64 `json:"messages"`
	Bytes    float64 `json:"bytes"`

	first, last uint64 // sequences
}

// trace is a pass of the producer, which is stopped while a program makes calls, and then continues.
func (h *hostRun) trace(ctx context.Context, round int) (*pass, error) {
	before, first, err := h.settled(ctx)
	if err != nil {
		return nil, err
	}
	had, err := h.count(ctx, h.subject(h.kind.String()))
	if err != nil {
		return nil, err
	}
	h.producer.Signal(syscall.SIGSTOP)
	calls := hostRound / len(h.ops)
	if err := h.call(ctx, calls); err != nil {
		return nil, err
	}
	if seq, err := h.lastSeq(ctx); err != nil || seq != first {
		return nil, errors.Join(err, fmt.Errorf("the producer is stopped, but the stream grew from %d to %d", first,
			seq))
	}
	begin, err := h.read(h.producer)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	h.producer.Signal(syscall.SIGCONT)
	after, err := h.done(ctx, &before, began, calls)
	if err != nil {
		return nil, err
	}
	end, err := h.read(h.producer)
	if err != nil {
		return nil, err
	}
	last, err := h.lastSeq(ctx)
	if err != nil {
		return nil, err
	}
	if acked := after.batches - before.batches; float64(last-first) != acked {
		return nil, fmt.Errorf("the stream has %d more messages, but %.0f batches of the producer were acked",
			last-first, acked)
	}
	has, err := h.count(ctx, h.subject(h.kind.String()))
	if err != nil {
		return nil, err
	}
	p := &pass{
		use: begin.until(end), Round: round, Events: after.called - before.called, Messages: has - had,
		Bytes: after.bytes - before.bytes, first: first + 1, last: last,
	}
	message, err := h.stream.GetLastMsgForSubject(ctx, h.subject(h.kind.String()))
	if err != nil {
		return nil, fmt.Errorf("look up the producer's last message: %w", err)
	}
	at, err := h.acks.of(ctx, message.Sequence)
	if err != nil {
		return nil, err
	}
	p.Took = at.Sub(began).Seconds()
	h.latest, h.called, h.seen = *p, h.called+p.Events, after.events
	h.print(p)
	return p, nil
}

// settled waits until the producer has published everything and returns its counters and the stream's last sequence. A
// heartbeat of its start may already be stored, but not acked yet.
func (h *hostRun) settled(ctx context.Context) (c hostCounters, last uint64, err error) {
	err = cluster.Until(ctx, startLimit, func() error {
		if c, err = h.counters(); err != nil {
			return err
		}
		if last, err = h.lastSeq(ctx); err != nil {
			return err
		}
		again, err := h.counters()
		if err == nil && (again.waiting > 0 || again.batches != c.batches) {
			err = fmt.Errorf("the producer still publishes: %.0f batches are queued, %.0f were acked", again.waiting,
				again.batches)
		}
		return err
	})
	return c, last, err
}

// call runs a program that calls the stub, on the producer's CPUs.
func (h *hostRun) call(ctx context.Context, calls int) error {
	w := &cluster.Process{Name: "workload", CPUs: h.hostCPUs, Args: []string{
		"/usr/bin/env", "LD_LIBRARY_PATH=" + filepath.Dir(h.stub()), h.caller, "bench", h.function, "--count",
		strconv.Itoa(calls),
	}}
	if err := h.start(w); err != nil {
		return err
	}
	for w.Running() {
		if err := cluster.Sleep(ctx, sampleWait/10); err != nil {
			return err
		}
	}
	if err := w.Err(); err != nil {
		return fmt.Errorf("run the workload: %w: see %s", err, w.Log())
	}
	return nil
}

// done waits until the producer has published everything. It reads the producer's metrics only after no ack has arrived
// for a while, because a page costs the producer time.
func (h *hostRun) done(ctx context.Context, before *hostCounters, began time.Time, calls int) (after hostCounters,
	err error) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if err := errors.Join(cluster.Sleep(ctx, quietTime/10), cluster.CheckRunning(h.producer)); err != nil {
			return after, err
		}
		if h.acks.silence(began) < quietTime {
			continue
		}
		if after, err = h.counters(); err != nil {
			return after, err
		}
		if after.lost > 0 || after.errors > before.errors {
			return after,
				fmt.Errorf("the producer lost %.0f events, and %.0f publishes failed: run with -keep, see its log",
					after.lost, after.errors)
		}
		if whole := float64(calls * len(h.ops)); after.waiting == 0 && after.called-before.called == whole {
			return after, nil
		} else if time.Now().After(deadline) {
			return after, fmt.Errorf("the producer has read %.0f of %.0f events, and %.0f batches are queued",
				after.called-before.called, whole, after.waiting)
		}
	}
}

// publishRaw is a pass of a raw publisher, whose messages are then purged.
func (h *hostRun) publishRaw(ctx context.Context, round, window int) (*pass, error) {
	to := h.subject("raw")
	c, p, err := h.publisher(ctx, h.latest.first, h.latest.last, window, to, hostName)
	if err != nil {
		return nil, err
	}
	if p.Messages != h.latest.Messages {
		return nil, fmt.Errorf("a raw publisher found %.0f of the producer's %.0f messages", p.Messages,
			h.latest.Messages)
	}
	p.Round, p.Window, p.Events = round, window, h.latest.Events
	h.print(p)
	return p, errors.Join(c.Stop(syscall.SIGTERM, time.Minute), h.purgeRaw(ctx, to, p.Messages))
}

// publisher starts a raw publisher of stored messages and waits until it has published them.
func (h *hostRun) publisher(ctx context.Context, first, last uint64, window int, to, host string) (*cluster.Process,
	*pass, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	c := &cluster.Process{Name: "publish", CPUs: h.hostCPUs, Dir: h.Dir, Out: h.Path("publish.out"), Args: []string{
		self, "publish", "-nats.url", h.url, "-first", fmt.Sprint(first), "-last", fmt.Sprint(last),
		"-from", h.subject(h.kind.String()), "-to", to, "-host", host, "-window", strconv.Itoa(window),
	}}
	if err := h.start(c); err != nil {
		return nil, nil, err
	}
	if _, err := h.until(ctx, c, func(ready bool, _ *published) bool { return ready }); err != nil {
		return nil, nil, err
	}
	begin, err := h.read(c)
	if err != nil {
		return nil, nil, err
	}
	c.Signal(syscall.SIGUSR1)
	done, err := h.until(ctx, c, func(_ bool, done *published) bool { return done != nil })
	if err != nil {
		return nil, nil, err
	}
	end, err := h.read(c)
	if err != nil {
		return nil, nil, err
	}
	at, err := h.acks.of(ctx, done.Last)
	if err != nil {
		return nil, nil, err
	}
	return c, &pass{
		use: begin.until(end), Took: at.Sub(time.Unix(0, done.Began)).Seconds(),
		Messages: float64(done.Messages), Bytes: float64(done.Bytes),
	}, nil
}

// until waits until a publisher has printed enough.
func (h *hostRun) until(
	ctx context.Context, p *cluster.Process, enough func(ready bool, done *published) bool,
) (*published, error) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		isReady, done, err := readPublisher(p)
		if err != nil || enough(isReady, done) {
			return done, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s makes no progress: run with -keep and see its log", p.Name)
		}
		if err := errors.Join(cluster.Sleep(ctx, quietTime/10), cluster.CheckRunning(p)); err != nil {
			return nil, err
		}
	}
}

// count returns how many messages of a subject are stored.
func (h *hostRun) count(ctx context.Context, subject string) (float64, error) {
	info, err := h.stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	return float64(info.State.Subjects[subject]), nil
}

// purgeRaw checks how many messages a raw publisher has stored, and purges them.
func (h *hostRun) purgeRaw(ctx context.Context, subject string, want float64) error {
	if n, err := h.count(ctx, subject); err != nil || n != want {
		return errors.Join(err, fmt.Errorf("%.0f of %.0f raw messages are stored", n, want))
	}
	return h.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

func (h *hostRun) print(p *pass) {
	who := "producer"
	if p.Window > 0 {
		who = fmt.Sprintf("raw publisher, %d in flight", p.Window)
	}
	h.Say("%s, round %d, %s: %.2f M events/s, %.0f messages of %.0f bytes in %.3f s",
		h.function, p.Round, who, p.Events/p.Took/1e6, p.Messages, p.Bytes/p.Messages, p.Took)
}
