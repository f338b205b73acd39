package simulate

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/schema"
)

const (
	// mostInFlight limits the bytes that are made and not acked, of all workers.
	mostInFlight = 64 << 20
	// atOnce is the number of batches made between two checks for acks.
	atOnce = 64
	// lookEvery is the interval of checks for overdue acks.
	lookEvery  = 50 * time.Millisecond
	ackTimeout = 5 * time.Second
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

var (
	errNoAck       = errors.New("no ack within the timeout")
	errReconnected = errors.New("the connection was interrupted")
)

// worker makes and publishes the batches of some hosts over one connection. Only its goroutine uses its fields, except
// behind.
type worker struct {
	fleet     *fleet
	conn      *nats.Conn
	places    *places
	log       *logWriter
	counts    *counts
	note      *slog.Logger
	drain     time.Duration
	mostBytes int

	members    []*member
	ready      agenda // members that wait for their next due time
	busy       []*flow
	bytes      int // in busy
	free       [][]byte
	copier     *copier
	inbox      string // with the dot before the token
	acks       chan ack
	reconnects uint64       // reconnects handled so far
	failing    int          // flows whose last publish failed
	stopped    time.Time    // when the worker stopped making batches; zero: not yet
	behind     atomic.Int64 // ns
}

// member is one host and its flows.
type member struct {
	*host
	due      schema.KTime
	held     schema.Kind // the kind whose ack the next batch waits for
	finished bool
	flows    [schema.NumKinds]flow
}

// flow has the batches of one host and kind. At most one is in flight.
type flow struct {
	member  *member
	number  int    // index of the flow in its worker
	count   uint64 // number of batches so far: an ack names its batch by it
	batch   batch
	busy    bool
	index   int // in worker.busy
	failed  bool
	sent    bool // true: the ack is due at the time at; false: the batch is published again at that time
	at      time.Time
	wait    time.Duration
	place   *schema.Topology
	subject string
}

func (w *worker) add(h *host) {
	m := &member{host: h}
	for kind := range m.flows {
		m.flows[kind].member, m.flows[kind].number = m, len(w.members)*int(schema.NumKinds)+kind
	}
	w.members = append(w.members, m)
	w.plan(m)
}

// plan puts a member on the agenda unless it has finished.
func (w *worker) plan(m *member) {
	due, _, ok := m.next()
	m.due, m.finished = due, !ok
	if ok {
		heap.Push(&w.ready, m)
	}
}

// run makes due batches until ctx ends or all are made, and then waits for acks.
func (w *worker) run(ctx context.Context) error {
	w.copier, w.acks = newCopier(), make(chan ack, 1024)
	w.inbox, w.reconnects = w.conn.NewInbox()+".", w.conn.Stats().Reconnects
	stop := make(chan struct{})
	sub, err := w.conn.Subscribe(w.inbox+"*", func(m *nats.Msg) {
		select {
		case w.acks <- readAck(m, len(w.inbox)):
		case <-stop:
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to acks: %w", err)
	}
	defer func() {
		close(stop)
		_ = sub.Unsubscribe() // fails if the connection is closed
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		wait, err := w.step(ctx)
		if err != nil || wait < 0 {
			return err
		}
		if err := w.listen(ctx, wait, look.C); err != nil {
			return err
		}
	}
}

// step makes due batches and returns the time until the next one. A negative time means the end.
func (w *worker) step(ctx context.Context) (time.Duration, error) {
	if ctx.Err() != nil && w.stopped.IsZero() {
		w.stopMaking()
	}
	if !w.stopped.IsZero() {
		if left := w.drain - time.Since(w.stopped); len(w.busy) > 0 && left > 0 {
			return left, nil
		}
		return -1, nil
	}
	for range atOnce {
		if len(w.ready) == 0 {
			break
		}
		m := w.ready[0]
		if early := time.Until(w.fleet.start.Add(time.Duration(m.due))); early > 0 {
			return early, nil
		}
		if w.bytes >= w.mostBytes {
			return time.Hour, nil // an ack ends the wait
		}
		if err := w.advance(m); err != nil {
			return 0, err
		}
	}
	if len(w.ready) > 0 {
		return 0, nil
	}
	if len(w.busy) > 0 {
		return time.Hour, nil
	}
	w.stopMaking() // every batch is made
	return -1, nil
}

// advance makes the next batch of the first member on the agenda, unless its flow waits for an ack.
func (w *worker) advance(m *member) error {
	_, kind, _ := m.next()
	f := &m.flows[kind]
	heap.Pop(&w.ready)
	if f.busy {
		m.held = kind
		return nil
	}
	b := m.make(w.copier, w.buffer())
	if err := w.log.write(&m.header, &b); err != nil {
		return err
	}
	w.counts.made(&b)
	if b.withheld {
		w.recycle(b.data)
	} else {
		f.batch, f.busy, f.index, f.wait = b, true, len(w.busy), firstRetry
		f.count++
		w.busy = append(w.busy, f)
		w.bytes += len(b.data)
		if err := w.publish(f); err != nil {
			return err
		}
	}
	w.plan(m)
	return nil
}

func (w *worker) buffer() []byte {
	if n := len(w.free); n > 0 {
		b := w.free[n-1]
		w.free = w.free[:n-1]
		return b[:0]
	}
	return nil
}

func (w *worker) recycle(data []byte) {
	if len(w.free) < atOnce {
		w.free = append(w.free, data)
	}
}

// publish sends a flow's batch. It returns only errors that a retry cannot fix.
func (w *worker) publish(f *flow) error {
	if t := w.places.current.Load(); f.place != t {
		h := &f.member.header
		f.place, f.subject = t, schema.Subject(t.Shard(h.Cluster, h.Host), h.Cluster, h.Host, f.batch.kind)
	}
	var token [40]byte
	reply := append(token[:0], w.inbox...)
	reply = strconv.AppendUint(reply, uint64(f.number), 10)
	reply = append(reply, '-')
	reply = strconv.AppendUint(reply, f.count, 10)
	err := w.conn.PublishRequest(f.subject, string(reply), f.batch.data)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return tooLarge(f)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("publish: %w", err)
	case err != nil:
		w.later(f, err)
	default:
		f.sent, f.at = true, time.Now().Add(ackTimeout)
	}
	return nil
}

func tooLarge(f *flow) error {
	return fmt.Errorf("publish: the batch of %d bytes is too large: raise max_payload of the NATS server and "+
		"max_msg_size of its streams",
		len(f.batch.data))
}

// later schedules a retry of a batch with back-off.
func (w *worker) later(f *flow, err error) {
	if w.failing == 0 {
		w.note.Warn("publish failed; retrying", "subject", f.subject, "err", err)
	}
	if !f.failed {
		f.failed = true
		w.failing++
	}
	w.places.refresh()
	f.sent, f.at = false, time.Now().Add(f.wait/2+rand.N(f.wait/2))
	f.wait = min(2*f.wait, lastRetry)
}

// listen handles acks until there is something else to do.
func (w *worker) listen(ctx context.Context, wait time.Duration, look <-chan time.Time) error {
	done, timer := ctx.Done(), always
	if !w.stopped.IsZero() {
		done = nil
	}
	if wait > 0 {
		timer = time.After(wait)
	}
	select {
	case a := <-w.acks:
		if err := w.take(a); err != nil {
			return err
		}
		for range len(w.acks) {
			if err := w.take(<-w.acks); err != nil {
				return err
			}
		}
	case <-look:
		return w.look()
	case <-timer:
	case <-done:
	}
	return nil
}

// always is a timer that has expired.
var always = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// look retries batches without an ack and updates behind.
func (w *worker) look() error {
	now := time.Now()
	w.behind.Store(int64(w.lag(now)))
	if n := w.conn.Stats().Reconnects; n != w.reconnects {
		w.reconnects = n
		for _, f := range w.busy { // their acks went to the old connection
			w.later(f, errReconnected)
		}
	}
	for _, f := range w.busy {
		if now.Before(f.at) {
			continue
		}
		if f.sent {
			w.later(f, errNoAck)
			continue
		}
		w.counts.again.Add(1)
		if err := w.publish(f); err != nil {
			return err
		}
	}
	return nil
}

// take handles an ack or a rejection. It returns only errors that a retry cannot fix.
func (w *worker) take(a ack) error {
	if a.flow < 0 || a.flow >= len(w.members)*int(schema.NumKinds) {
		return nil
	}
	m := w.members[a.flow/int(schema.NumKinds)]
	f := &m.flows[a.flow%int(schema.NumKinds)]
	if !f.busy || f.count != a.count {
		return nil // a second ack of an earlier batch
	}
	if errors.Is(a.err, errTooLarge) {
		return tooLarge(f)
	}
	if a.err != nil {
		if f.sent {
			w.later(f, a.err)
		}
		return nil
	}
	if f.failed {
		f.failed = false
		if w.failing--; w.failing == 0 { // until then a part of the shards is unreachable
			w.note.Info("publishing again", "subject", f.subject)
		}
	}
	w.counts.acked(&f.batch)
	w.bytes -= len(f.batch.data)
	w.recycle(f.batch.data)
	f.batch, f.busy = batch{}, false
	last := w.busy[len(w.busy)-1]
	w.busy[f.index], last.index = last, f.index
	w.busy = w.busy[:len(w.busy)-1]
	if m.held == schema.Kind(a.flow%int(schema.NumKinds)) {
		m.held = schema.KindNone
		w.plan(m)
	}
	return nil
}

// stopMaking stops making batches and records the lag.
func (w *worker) stopMaking() {
	w.stopped = time.Now()
	w.behind.Store(int64(w.lag(w.stopped)))
	w.ready = nil
}

// lag returns the age of the oldest batch that is due but not made.
func (w *worker) lag(now time.Time) (most time.Duration) {
	for _, m := range w.members {
		if !m.finished {
			most = max(most, now.Sub(w.fleet.start.Add(time.Duration(m.due))))
		}
	}
	return most
}
