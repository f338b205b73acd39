package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// mostSubjects bounds one request: JetStream answers with at most 1,024 messages.
const mostSubjects = 512

// NothingPending reports whether a stream holds no message of these subjects after sequence. The stream must have just
// been looked up: its cached info is the leader's. A reader of several subjects reads every message, so any message
// that was not removed counts; that of one subject counts only messages of the subject.
func NothingPending(
	ctx context.Context, nc *nats.Conn, s jetstream.Stream, subjects []string, sequence uint64,
) (bool, error) {
	state := s.CachedInfo().State
	switch {
	case sequence >= state.LastSeq || state.Msgs == 0:
		return true, nil
	case len(subjects) == 1:
		return nothingOfSubject(ctx, nc, s, subjects[0], sequence)
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

// nothingOfSubject is NothingPending for a reader of one subject. Not every reader may ask the leader for a message,
// so it asks a replica for the last message of each host; the answer says how far the replica is. If there are no
// messages, or too many hosts for one answer, the leader first lists the hosts.
func nothingOfSubject(
	ctx context.Context, nc *nats.Conn, s jetstream.Stream, subject string, sequence uint64,
) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	none, err := nothingOfSubjects(ctx, nc, s, []string{subject}, sequence)
	if !errors.Is(err, ErrStaleReplica) {
		return none, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, fmt.Errorf("look up stream: %w", err)
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(info.State.Subjects)), mostSubjects) {
		if none, err := nothingOfSubjects(ctx, nc, s, some, sequence); err != nil || !none {
			return false, err
		}
	}
	return true, nil
}

func nothingOfSubjects(
	ctx context.Context, nc *nats.Conn, s jetstream.Stream, subjects []string, sequence uint64,
) (bool, error) {
	info := s.CachedInfo()
	request, err := json.Marshal(map[string]any{"multi_last": subjects, "seq": sequence + 1, "batch": 1})
	if err != nil {
		return false, err
	}
	reply, err := nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"DIRECT.GET."+info.Config.Name, request)
	if err != nil {
		return false, fmt.Errorf("read the end of %s: %w", info.Config.Name, err)
	}
	switch status := reply.Header.Get("Status"); status {
	case "": // a message
		return false, nil
	case "204": // the subjects have messages, but none after sequence
		upTo, err := strconv.ParseUint(reply.Header.Get("Nats-UpTo-Sequence"), 10, 64)
		if err == nil && upTo >= info.State.LastSeq {
			return true, nil
		}
	case "404", "413": // no messages; too many subjects for one answer
	default:
		return false, fmt.Errorf("read the end of %s: status %s %s", info.Config.Name, status,
			reply.Header.Get("Description"))
	}
	return false, fmt.Errorf("read the end of %s: %w", info.Config.Name, ErrStaleReplica)
}

// Subjects are those of a fold's kinds in one shard.
func Subjects(shard int, kinds []schema.Kind) (subjects []string) {
	for _, kind := range kinds {
		subjects = append(subjects, schema.KindSubjects(shard, kind))
	}
	return subjects
}
