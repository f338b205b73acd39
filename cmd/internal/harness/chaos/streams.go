package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// repeats counts batches that are stored again, by shard and kind.
type repeats map[int]*[schema.NumKinds]uint64

func (r repeats) total() (sum uint64) {
	for _, kinds := range r {
		for _, n := range kinds {
			sum += n
		}
	}
	return sum
}

// verifyStreams checks that each shard's stream holds exactly the published batches of its hosts: under their subjects,
// unchanged and in order. A batch may be stored again if its ack was lost or its simulator restarted. The repeat
// comes before the next batch of its kind, or after it if a node that was cut off or killed forwarded it late.
func (f *fleet) verifyStreams(ctx context.Context, t *truth) (repeats, error) {
	again := repeats{}
	decoder := schema.NewDecoder()
	var b schema.Batch
	stored := map[origin][2]uint64{} // the last seq, and the one before it
	for shard := range f.shards {
		again[shard] = &[schema.NumKinds]uint64{}
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
			case schema.Shard(b.Cluster, b.Host, f.shards) != shard:
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
