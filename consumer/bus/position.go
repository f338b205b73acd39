package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// RequestTimeout bounds one request to JetStream.
const RequestTimeout = 5 * time.Second

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// errStaleReplica means that a replica lacks messages that the leader of its stream has. Retry.
var errStaleReplica = errors.New("a replica has not caught up with the leader of its stream")

// Position is how far a stream was read. The zero Position is of a stream that was never read.
type Position struct {
	Sequence uint64    `json:"sequence"` // last message read
	Stored   time.Time `json:"stored"`   // when NATS stored that message
	Created  time.Time `json:"created"`  // when the stream was created
}

// SameStream reports whether a stream, as its leader has just described it, still is the one that was read up to at. A
// power failure may take the end of a stream, and JetStream then uses its sequences again for other messages.
func SameStream(ctx context.Context, s jetstream.Stream, at Position) (bool, error) {
	info := s.CachedInfo()
	if !info.Created.Equal(at.Created) || info.State.LastSeq < at.Sequence {
		return false, nil
	}
	if at.Sequence < info.State.FirstSeq || at.Stored.IsZero() {
		return true, nil // retention removed the message: there is nothing to compare
	}
	last, err := s.GetMsg(ctx, at.Sequence)
	if err == nil {
		return last.Time.Equal(at.Stored), nil
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) { // a stale replica says so too
		err = confirmRemoved(ctx, s, at.Sequence)
	}
	if err != nil {
		return false, fmt.Errorf("read message %d of %s: %w", at.Sequence, info.Config.Name, err)
	}
	return true, nil
}

// confirmRemoved asks the stream's leader whether a message was removed. If not, the replica is stale.
func confirmRemoved(ctx context.Context, s jetstream.Stream, sequence uint64) error {
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err == nil && sequence >= info.State.FirstSeq && !slices.Contains(info.State.Deleted, sequence) {
		return errStaleReplica
	}
	return err
}
