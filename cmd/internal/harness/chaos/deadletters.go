package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// damaged is a batch of no use that all folds read. One is put into each shard while nothing is hurt yet; those who begin again from
// before it meet it again.
var damaged = []byte("no batch")

func damagedSubject(shard int) string {
	return schema.Subject(shard, "chaos", "damaged", schema.KindHost)
}

func (f *fleet) publishDamaged(ctx context.Context) error {
	for shard := range f.shards {
		ack, err := f.js.Publish(ctx, damagedSubject(shard), damaged)
		if err != nil {
			return fmt.Errorf("publish a damaged batch to shard %d: %w", shard, err)
		}
		f.damagedAt = append(f.damagedAt, ack.Sequence)
	}
	return nil
}

// verifyLetters checks that each fold has copied the damaged batch of each shard to the dead letters once, and nothing else.
func (f *fleet) verifyLetters(ctx context.Context) error {
	copies := map[string]int{} // by subject
	if err := f.eachMessage(ctx, schema.DeadLetterStream, func(m jetstream.Msg) error {
		for shard, at := range f.damagedAt {
			for _, name := range consumers {
				if m.Subject() == schema.DeadLetterSubject(name, shard) && bytes.Equal(m.Data(), damaged) && m.Headers().Get("Gputap-Seq") == strconv.FormatUint(at, 10) {
					copies[m.Subject()]++
					return nil
				}
			}
		}
		return fmt.Errorf("%s, seq %s: nothing damaged was published there", m.Subject(), m.Headers().Get("Gputap-Seq"))
	}); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	for shard := range f.shards {
		for _, name := range consumers {
			if n := copies[schema.DeadLetterSubject(name, shard)]; n == 0 || n > 1 && f.from == "" { // older programs give copies no ids
				return fmt.Errorf("%s of shard %d copied its damaged batch %d times to the dead letters", name, shard, n)
			}
		}
	}
	f.say("%d damaged batches are among the dead letters, once for each fold", f.shards)
	return nil
}
