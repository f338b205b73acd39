package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// repeats counts batches that are stored again, by shard and kind.
type repeats map[int]*[schema.NumKinds]uint64

// verifyStreams checks that each shard's stream holds what was published for its hosts, under its subject, unchanged and in
// order, and nothing else. A batch may be stored again where its ack was lost or its simulator was started again. Before
// the next of its kind, that is: or behind it, when a node that was cut off or killed meanwhile still passed it on.
func (f *fleet) verifyStreams(ctx context.Context, t *truth) (repeats, error) {
	again := repeats{}
	decoder := schema.NewDecoder()
	var b schema.Batch
	stored := map[origin][2]uint64{} // the last seq, and the one before
	for shard := range f.shards {
		again[shard] = &[schema.NumKinds]uint64{}
		if err := f.eachMessage(ctx, schema.StreamName(shard), func(m jetstream.Msg) error {
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
				return fmt.Errorf("a batch of %s is not of this shard", at)
			case subject != own:
				return fmt.Errorf("seq %d of %s was published as %s, not as %s", b.Seq, at, subject, own)
			case b.Seq > uint64(len(want)) || want[b.Seq-1].sum != sum(data):
				return fmt.Errorf("seq %d of %s is not what was logged", b.Seq, at)
			case want[b.Seq-1].withheld:
				return fmt.Errorf("seq %d of %s is stored, and was to be withheld", b.Seq, at)
			case b.Seq == before[0] || b.Seq == before[1]:
				again[shard][b.Kind]++
				return nil
			case b.Seq < before[0]:
				return fmt.Errorf("seq %d of %s comes again after %d", b.Seq, at, before[0])
			}
			for seq := before[0] + 1; seq < b.Seq; seq++ {
				if !want[seq-1].withheld {
					return fmt.Errorf("seq %d of %s comes after %d: lost", b.Seq, at, before[0])
				}
			}
			stored[at] = [2]uint64{b.Seq, before[0]}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("stream of shard %d: %w", shard, err)
		}
	}
	for at, last := range t.last {
		if stored[at][0] != last {
			return nil, fmt.Errorf("%s: the last batch stored is %d of %d", at, stored[at][0], last)
		}
	}
	return again, nil
}

func (f *fleet) eachMessage(ctx context.Context, name string, see func(jetstream.Msg) error) error {
	jsStream, err := f.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	if first := jsStream.CachedInfo().State.FirstSeq; first > 1 {
		return fmt.Errorf("it has let go of its beginning, up to %d: nothing can be compared", first)
	}
	left := jsStream.CachedInfo().State.Msgs
	if left == 0 {
		return nil
	}
	ordered, err := f.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := ordered.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := see(m); err != nil {
			return err
		}
	}
	return nil
}
