package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// damaged is an invalid batch that all folds read. One is published to each shard before the fleet is disturbed. An
// instance that restores an earlier state reads it again.
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

// verifyDeadLetters checks that each fold has copied the damaged batch of each shard to the dead letters once, and that
// nothing else is there.
func (f *fleet) verifyDeadLetters(ctx context.Context) error {
	copies := map[string]int{} // by subject
	err := cluster.EveryMessage(ctx, f.js, schema.DeadLetterStream, func(m jetstream.Msg) error {
		seq := m.Headers().Get("Gputap-Seq")
		for shard, at := range f.damagedAt {
			for _, name := range fold.Names() {
				if m.Subject() == schema.DeadLetterSubject(name, shard) && bytes.Equal(m.Data(), damaged) &&
					seq == strconv.FormatUint(at, 10) {
					copies[m.Subject()]++
					return nil
				}
			}
		}
		return fmt.Errorf("dead letter %s of seq %s: no damaged batch was published there", m.Subject(), seq)
	})
	if err != nil {
		return err
	}
	for shard := range f.shards {
		for _, name := range fold.Names() {
			if n := copies[schema.DeadLetterSubject(name, shard)]; n != 1 {
				return fmt.Errorf("%s copied the damaged batch of shard %d to the dead letters %d times, want once",
					name, shard, n)
			}
		}
	}
	f.Say("the dead letters hold %d damaged batches, once for each fold", f.shards)
	return nil
}
