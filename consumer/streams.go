package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// StreamOptions say how much the bus keeps. Zero values take the default.
type StreamOptions struct {
	Shards   int           // 1
	Replicas int           // 1
	MaxAge   time.Duration // 24 h
	MaxBytes int64         // of all shards together, and JetStream reserves it; 1 GiB a shard
	Lease    time.Duration // after which the shards of an instance that is gone are another's; 10 s
}

const (
	defaultAge     = 24 * time.Hour
	defaultBytes   = 1 << 30
	maxDeadLetters = 256 << 20
	maxOut         = 64 << 20
	outAge         = 7 * 24 * time.Hour
	// The shortest window JetStream takes: a batch is known by its seq, for ever, and needs none.
	duplicateWindow = 100 * time.Millisecond
	// A fold that starts again raises the alerts of all that is stored again, by the same ids.
	outDuplicateWindow = 24 * time.Hour
)

// EnsureStreams creates the shards' streams, the dead letters' and the consumers' own. Those that
// exist get these limits and keep whatever else they were given.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) error {
	shards := max(o.Shards, 1)
	if o.MaxAge <= 0 {
		o.MaxAge = defaultAge
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultBytes * int64(shards)
	}
	out := streamConfig(schema.OutStream, schema.AlertSubjects)
	out.MaxAge, out.MaxBytes, out.Duplicates = outAge, min(maxOut, o.MaxBytes/16), outDuplicateWindow
	streams := []jetstream.StreamConfig{deadLetterConfig(o.MaxBytes / 8), out}
	for shard := range shards {
		s := streamConfig(schema.StreamName(shard), schema.ShardSubjects(shard))
		s.MaxAge, s.MaxBytes = o.MaxAge, o.MaxBytes/int64(shards)
		s.Compression, s.DenyDelete = jetstream.S2Compression, true
		streams = append(streams, s)
	}
	state := streamConfig(schema.StateStream, schema.StateSubjects)
	state.MaxMsgsPerSubject, state.AllowMsgTTL, state.Compression = 1, true, jetstream.S2Compression
	streams = append(streams, state)
	if o.Lease <= 0 {
		o.Lease = 10 * time.Second
	}
	if _, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: schema.LeaseBucket, TTL: o.Lease, LimitMarkerTTL: max(o.Lease, time.Second), Storage: jetstream.MemoryStorage, Replicas: max(o.Replicas, 1)}); err != nil {
		return err
	}
	meta, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: schema.MetaBucket, Replicas: max(o.Replicas, 1)})
	if err != nil {
		return err
	}
	if _, err := meta.PutString(ctx, schema.TopologyKey, fmt.Sprintf(`{"generation":1,"first":0,"shards":%d}`, shards)); err != nil {
		return err
	}
	for _, s := range streams {
		s.Replicas = max(o.Replicas, 1)
		if err := ensureStream(ctx, js, s); err != nil {
			return err
		}
	}
	return nil
}

func streamConfig(name, subjects string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, Duplicates: duplicateWindow, AllowDirect: true, Replicas: 1,
	}
}

// deadLetterConfig bounds the dead letters to their share of a budget, if there is one.
func deadLetterConfig(budget int64) jetstream.StreamConfig {
	s := streamConfig(schema.DeadLetterStream, schema.DeadLetterSubjects)
	s.MaxBytes = maxDeadLetters
	if budget > 0 {
		s.MaxBytes = min(maxDeadLetters, budget)
	}
	return s
}

func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	_, err := js.CreateStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		err = adjustStream(ctx, js, want)
	}
	if err != nil {
		return fmt.Errorf("create JetStream stream %s: %w", want.Name, err)
	}
	return nil
}

// adjustStream sets an existing stream's limits.
func adjustStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	s, err := js.Stream(ctx, want.Name)
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	if have.MaxAge == want.MaxAge && have.MaxBytes == want.MaxBytes && have.Replicas == want.Replicas {
		return nil
	}
	have.MaxAge, have.MaxBytes, have.Replicas = want.MaxAge, want.MaxBytes, want.Replicas
	_, err = js.UpdateStream(ctx, have)
	return err
}
