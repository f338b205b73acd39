package cluster

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Range selects messages of a JetStream stream.
type Range struct {
	Stream  string
	First   uint64 // sequence; 0: the first message that the stream holds
	Last    uint64 // sequence; 0: the last message that the stream holds
	Subject string // empty: all subjects
}

// EachMessage calls see for every message of a range, in order. An ordered consumer reads faster than single or batched
// direct gets, and a range needs nothing else.
func EachMessage(ctx context.Context, js jetstream.JetStream, r Range, see func(jetstream.Msg) error) error {
	config := jetstream.OrderedConsumerConfig{}
	if r.Subject != "" {
		config.FilterSubjects = []string{r.Subject}
	}
	if r.First > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.First
	}
	ordered, err := js.OrderedConsumer(ctx, r.Stream, config)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", r.Stream, err)
	}
	left := ordered.CachedInfo().NumPending
	if left == 0 {
		return nil
	}
	messages, err := ordered.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", r.Stream, err)
	}
	defer messages.Stop()
	for left > 0 {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", r.Stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if r.Last > 0 && meta.Sequence.Stream > r.Last {
			return nil
		}
		if err := see(m); err != nil {
			return fmt.Errorf("stream %s, message %d: %w", r.Stream, meta.Sequence.Stream, err)
		}
		left--
	}
	return nil
}

// EveryMessage is EachMessage for a whole stream that must still hold its first message.
func EveryMessage(ctx context.Context, js jetstream.JetStream, stream string, see func(jetstream.Msg) error) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", stream, err)
	}
	if first := s.CachedInfo().State.FirstSeq; first > 1 {
		return fmt.Errorf("stream %s has removed its messages before %d: nothing can be compared", stream, first)
	}
	return EachMessage(ctx, js, Range{Stream: stream}, see)
}
