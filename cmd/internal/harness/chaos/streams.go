package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// repeats counts batches that are stored again, by shard and kind.
type repeats [shards][schema.NumKinds]uint64

func (r *repeats) total() (sum uint64) {
	for shard := range r {
		for _, n := range r[shard] {
			sum += n
		}
	}
	return sum
}

// verifyStreams checks that each shard's stream holds exactly the published batches of its hosts: under their subjects,
// unchanged and in order. A batch may be stored again if its ack was lost or its simulator restarted. The repeat
// comes before the next batch of its kind, or after it if a node that was cut off or killed forwarded it late.
func (f *fleet) verifyStreams(ctx context.Context, t *truth) (*repeats, error) {
	again := &repeats{}
	decoder := schema.NewDecoder()
	var b schema.Batch
	stored := map[origin][2]uint64{} // the last seq, and the one before it
	for shard := range shards {
		err := cluster.EveryMessage(ctx, f.js, schema.StreamName(shard), func(m jetstream.Msg) error {
			subject, data := m.Subject(), m.Data()
			if subject == damagedSubject(shard) && bytes.Equal(data, damaged) {
				return nil
			}
			if err := decoder.Decode(data, &b); err != nil {
				return err
			}
			at := originOf(&b)
			want, before := t.batches[at], stored[at]
			switch own := fmt.Sprintf("gputap.v1.ev.%d.%s.%s.%s", shard, b.Cluster, b.Host, b.Kind); {
			case schema.Shard(b.Cluster, b.Host, shards) != shard:
				return fmt.Errorf("a batch of %s does not belong to this shard", at)
			case subject != own:
				return fmt.Errorf("seq %d of %s has the subject %s, want %s", b.Seq, at, subject, own)
			case b.Seq > uint64(len(want)) || want[b.Seq-1].sum != sum(data):
				return fmt.Errorf("seq %d of %s differs from the truth log", b.Seq, at)
			case want[b.Seq-1].withheld:
				return fmt.Errorf("seq %d of %s is stored, but was withheld", b.Seq, at)
			case b.Seq == before[0] || b.Seq == before[1]:
				again[shard][b.Kind]++
				return nil
			case b.Seq < before[0]:
				return fmt.Errorf("seq %d of %s is repeated after %d", b.Seq, at, before[0])
			}
			for seq := before[0] + 1; seq < b.Seq; seq++ {
				if !want[seq-1].withheld {
					return fmt.Errorf("seq %d of %s follows %d: a batch is lost", b.Seq, at, before[0])
				}
			}
			stored[at] = [2]uint64{b.Seq, before[0]}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for at, last := range t.last {
		if stored[at][0] != last {
			return nil, fmt.Errorf("%s: the last stored batch is %d, the last published one %d", at, stored[at][0],
				last)
		}
	}
	return again, nil
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
	copies := map[letter]int{}
	for shard, at := range f.damagedAt {
		for _, name := range fold.Names() {
			subject := schema.DeadLetterSubject(name, shard)
			copies[letter{subject, strconv.FormatUint(at, 10), string(damaged)}] = 0
		}
	}
	err := cluster.EveryMessage(ctx, f.js, schema.DeadLetterStream, func(m jetstream.Msg) error {
		l := letter{m.Subject(), m.Headers().Get("Gputap-Seq"), string(m.Data())}
		if _, known := copies[l]; !known {
			return fmt.Errorf("dead letter %s of seq %s: no damaged batch was published there", l.subject, l.seq)
		}
		copies[l]++
		return nil
	})
	if err != nil {
		return err
	}
	for l, n := range copies {
		if n != 1 {
			return fmt.Errorf("the damaged batch was copied to the dead letter %s %d times, want once", l.subject, n)
		}
	}
	f.Say("the dead letters hold %d damaged batches, once for each fold", shards)
	return nil
}

// alert is the part of a published alert that is compared here.
type alert struct {
	Cluster, Host, Symbol string
	PID                   uint32
	Evidence              struct{ Boot string }
}

// verifyAlerts checks that there are stored alerts, and that all of them are of processes whose allocations failed. How
// many there are is only reported: an alert is lost if NATS is unreachable for too long.
func (f *fleet) verifyAlerts(ctx context.Context, t *truth) error {
	raised, stored := map[alert]bool{}, map[alert]bool{}
	for id, p := range t.processes {
		for symbol := range p.failed {
			a := alert{Cluster: id.Cluster, Host: id.Host, Symbol: symbol, PID: id.PID}
			a.Evidence.Boot = id.BootID
			raised[a] = true
		}
	}
	err := cluster.EveryMessage(ctx, f.js, schema.OutStream, func(m jetstream.Msg) error {
		var a alert
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			return err
		}
		if !raised[a] {
			return fmt.Errorf("alert %s: no such failed allocation was published", m.Data())
		}
		stored[a] = true
		return nil
	})
	if err != nil {
		return err
	}
	f.Say("%d of %d alerts are stored in %s", len(stored), len(raised), schema.OutStream)
	if len(stored) == 0 {
		return errors.New("no alert was published")
	}
	return nil
}
