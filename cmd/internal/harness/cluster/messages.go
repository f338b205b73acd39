package cluster

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// EachMessage calls see for every selected message that a stream holds now, in order. An ordered consumer reads faster
// than single or batched direct gets.
func EachMessage(ctx context.Context, js jetstream.JetStream, stream string, selected jetstream.OrderedConsumerConfig,
	see func(jetstream.Msg) error,
) error {
	ordered, err := js.OrderedConsumer(ctx, stream, selected)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	left := ordered.CachedInfo().NumPending
	if left == 0 {
		return nil
	}
	messages, err := ordered.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream, err)
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := see(m); err != nil {
			return fmt.Errorf("stream %s, message %d: %w", stream, meta.Sequence.Stream, err)
		}
	}
	return nil
}

// EveryMessage is EachMessage for all messages of a stream that must still hold its first one.
func EveryMessage(ctx context.Context, js jetstream.JetStream, stream string, see func(jetstream.Msg) error) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", stream, err)
	}
	if first := s.CachedInfo().State.FirstSeq; first > 1 {
		return fmt.Errorf("stream %s has removed its messages before %d: nothing can be compared", stream, first)
	}
	return EachMessage(ctx, js, stream, jetstream.OrderedConsumerConfig{}, see)
}
