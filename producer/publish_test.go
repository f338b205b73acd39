package producer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// lateBus stores each message at once and acks it later.
type lateBus struct {
	jetstream.JetStream
	late   time.Duration
	stored map[string]int // copies
}

func (b *lateBus) Conn() *nats.Conn { return nil }

func (b *lateBus) PublishMsg(ctx context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	b.stored[string(m.Data)]++
	select {
	case <-time.After(b.late):
		return &jetstream.PubAck{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestLateAcksDoNotStopPublishing checks acks that are up to a minute late. The stream does not fill with copies.
func TestLateAcksDoNotStopPublishing(t *testing.T) {
	for _, tt := range []struct {
		late   time.Duration
		copies [3]int // of each batch
	}{
		{time.Second, [3]int{1, 1, 1}},
		// the second is sent as soon, because a lost leader is replaced by then
		{ackTimeout + time.Second, [3]int{3, 1, 1}},
		{longestAck - time.Second, [3]int{6, 1, 1}},
	} {
		t.Run(tt.late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := &lateBus{late: tt.late, stored: map[string]int{}}
				route := newRouter(bus, "c", "h", 0, quiet())
				route.follow(schema.Topology{Generation: 1, Shards: 1}, time.Now())
				p := &publisher{js: bus, route: route, kind: schema.KindMemory, metrics: newMetrics(), log: quiet()}
				for i, want := range tt.copies {
					data := string(rune('a' + i))
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					if err := p.deliver(ctx, batchOf(data)); err != nil || bus.stored[data] != want {
						t.Fatalf("batch %d: %v, sent %d times, want %d", i, err, bus.stored[data], want)
					}
				}
				bus.late = 0
				if err := p.deliver(t.Context(), batchOf("x")); err != nil {
					t.Fatal(err)
				}
				bus.late = longestAck
				ctx, cancel := context.WithTimeout(t.Context(), 2*ackTimeout+lastRetry)
				defer cancel()
				if err := p.deliver(ctx, batchOf("y")); err == nil || bus.stored["y"] < 2 {
					t.Errorf("when acks came in time again, a lost one is waited for %d times in %v", bus.stored["y"],
						2*ackTimeout+lastRetry)
				}
			})
		})
	}
}

func batchOf(data string) *encoded {
	return &encoded{Batch: outbox.Batch{Kind: schema.KindMemory, Data: []byte(data)}}
}
