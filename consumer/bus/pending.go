package bus

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// NothingPending reports whether a stream holds no message after sequence that was not removed. The stream must have
// just been looked up: its cached info is the leader's.
func NothingPending(ctx context.Context, s jetstream.Stream, sequence uint64) (bool, error) {
	state := s.CachedInfo().State
	switch {
	case sequence >= state.LastSeq || state.Msgs == 0:
		return true, nil
	case state.NumDeleted == 0:
		return false, nil
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	next := max(sequence+1, info.State.FirstSeq)
	for _, removed := range slices.Sorted(slices.Values(info.State.Deleted)) {
		if removed == next {
			next++
		}
	}
	return next > info.State.LastSeq, nil
}
