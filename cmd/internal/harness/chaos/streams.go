package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// repeats counts batches that are stored again.
type repeats struct {
	total uint64 // without summaries of ranks
	of    [shards][schema.NumKinds]uint64
}

// verifyStreams checks that each shard's stream holds exactly the published batches of its hosts: under their subjects,
// unchanged and in order. A batch may be stored again if its ack was lost or its simulator restarted. The repeat
// comes before the next batch of its kind, or after it if a node that was cut off or killed forwarded it late. The
// streams also hold the summaries of ranks.
func (f *fleet) verifyStreams(ctx context.Context, t *truth) (*repeats, *summaries, error) {
	again, ofRanks := &repeats{}, newSummaries()
	decoder := schema.NewDecoder()
	var b schema.Batch
	stored := map[origin]int{} // batches, without repeats
	for shard := range shards {
		err := cluster.EveryMessage(ctx, f.js, schema.StreamName(shard), func(m jetstream.Msg) error {
			if m.Subject() == damagedSubject(shard) && bytes.Equal(m.Data(), damaged) {
				return nil
			}
			if err := decoder.Decode(m.Data(), &b); err != nil {
				return err
			}
			if b.Kind == schema.KindRank {
				return ofRanks.add(shard, m.Subject(), m.Data(), &b)
			}
			at, got := originOf(&b), batchOf(&b, m.Data())
			own := fmt.Sprintf("gputap.v1.ev.%d.%s.%s.%s", shard, b.Cluster, b.Host, b.Kind)
			want, n := t.batches[at], stored[at]
			switch {
			case m.Subject() != own || schema.Shard(b.Cluster, b.Host, shards) != shard:
				return fmt.Errorf("seq %d of %s is under the subject %s", b.Seq, at, m.Subject())
			case n < len(want) && want[n] == got:
				stored[at]++
			case slices.Contains(want[max(0, n-2):n], got):
				again.of[shard][b.Kind]++
				again.total++
			default:
				return fmt.Errorf("seq %d of %s was not published after %d others: it was changed, withheld, lost or "+
					"stored out of order", b.Seq, at, n)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		again.of[shard][schema.KindRank] = ofRanks.again[shard]
	}
	for at, want := range t.batches {
		if stored[at] != len(want) {
			return nil, nil, fmt.Errorf("%s: %d batches are stored, %d were published", at, stored[at], len(want))
		}
	}
	return again, ofRanks, nil
}

// damaged is an invalid batch that all folds read. One is published to each shard before the fleet is disturbed. An
// instance that restores an earlier state reads it again.
var damaged = []byte("no batch")

func damagedSubject(shard int) string {
	return schema.Subject(shard, "chaos", "damaged", schema.KindHost)
}

func (f *fleet) publishDamaged(ctx context.Context) error {
	for shard := range shards {
		ack, err := f.js.Publish(ctx, damagedSubject(shard), damaged)
		if err != nil {
			return fmt.Errorf("publish a damaged batch to shard %d: %w", shard, err)
		}
		f.damagedAt[shard] = ack.Sequence
	}
	return nil
}

// verifyDeadLetters checks that each fold has copied the damaged batch of each shard to the dead letters once, and that
// nothing else is there.
func (f *fleet) verifyDeadLetters(ctx context.Context) error {
	type letter struct{ subject, seq, data string }
	want, got := map[letter]int{}, map[letter]int{}
	for shard, at := range f.damagedAt {
		for _, name := range fold.Names() {
			want[letter{schema.DeadLetterSubject(name, shard), strconv.FormatUint(at, 10), string(damaged)}] = 1
		}
	}
	err := cluster.EveryMessage(ctx, f.js, schema.DeadLetterStream, func(m jetstream.Msg) error {
		got[letter{m.Subject(), m.Headers().Get("Gputap-Seq"), string(m.Data())}]++
		return nil
	})
	if err != nil {
		return err
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the stored dead letters, and how often each is stored, are %v, want %v", got, want)
	}
	f.Say("the dead letters hold %d damaged batches, once for each fold", shards)
	return nil
}

// oomAlert is the part of an alert of the rule oom that is compared with the published events.
type oomAlert struct {
	Cluster, Host, Symbol string
	PID                   uint32
	Evidence              struct{ Boot string }
}

// verifyAlerts checks that alerts about exhausted memory are stored, and that all of them are of processes whose
// allocations failed. How many there are is only reported: an alert is lost if NATS is unreachable for too long.
func (f *fleet) verifyAlerts(ctx context.Context, t *truth) error {
	raised, stored, running := map[oomAlert]bool{}, map[oomAlert]bool{}, 0
	for id, p := range t.processes {
		if len(p.failed) > 0 && !p.exited {
			running++
		}
		for symbol := range p.failed {
			a := oomAlert{Cluster: id.Cluster, Host: id.Host, Symbol: symbol, PID: id.PID}
			a.Evidence.Boot = id.BootID
			raised[a] = true
		}
	}
	err := cluster.EveryMessage(ctx, f.js, schema.OutStream, func(m jetstream.Msg) error {
		var a struct {
			oomAlert
			Rule string
		}
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			return err
		}
		if !strings.HasPrefix(a.Rule, "oom") {
			return nil // about hosts whose batches were withheld
		}
		if !raised[a.oomAlert] {
			return fmt.Errorf("alert %s: no such failed allocation was published", m.Data())
		}
		stored[a.oomAlert] = true
		return nil
	})
	if err != nil {
		return err
	}
	f.Say("%d alerts of the rule oom are stored; %d processes had failed allocations, and %d of them did not exit",
		len(stored), len(raised), running)
	if len(stored) == 0 {
		return errors.New("no alert was published")
	}
	return nil
}
