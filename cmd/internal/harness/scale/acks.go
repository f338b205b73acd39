package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// inbox is the prefix of the reply subjects of everything that is measured here.
const inbox = "_INBOX." + hostCluster

// acks records when each message of a stream was acked. A separate subscriber receives every ack that a publisher
// receives, so all publishers are measured with one clock. A message's own timestamp would not do: the leader sets it
// before the message is replicated.
type acks struct {
	nc *nats.Conn

	mu   sync.Mutex
	at   map[uint64]time.Time
	last time.Time
}

func watchAcks(url string, shard int) (*acks, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	a := &acks{nc: nc, at: map[uint64]time.Time{}}
	_, err = nc.Subscribe(inbox+".>", func(m *nats.Msg) {
		now := time.Now()
		var ack struct {
			Stream string `json:"stream"`
			Seq    uint64 `json:"seq"`
		}
		if json.Unmarshal(m.Data, &ack) != nil || ack.Stream != schema.StreamName(shard) || ack.Seq == 0 {
			return // not an ack of this stream
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at[ack.Seq], a.last = now, now
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("watch acks: %w", err)
	}
	return a, nil
}

// of returns when a message was acked.
func (a *acks) of(ctx context.Context, seq uint64) (at time.Time, err error) {
	err = cluster.Until(ctx, 10*time.Second, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		var seen bool
		if at, seen = a.at[seq]; !seen {
			return fmt.Errorf("no ack of message %d was received", seq)
		}
		return nil
	})
	return at, err
}

// silence returns how long no ack has arrived, since a moment at most.
func (a *acks) silence(since time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.After(since) {
		since = a.last
	}
	return time.Since(since)
}
