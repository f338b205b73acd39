package bus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// StreamOptions say how much the bus keeps, and in how many shards. A zero value keeps the value of the bus; a new bus
// gets the default.
type StreamOptions struct {
	NewShards int           // shards of a bus that has none, if Shards is 0; default 1
	Shards    int           // default 1
	Replicas  int           // default 1
	MaxAge    time.Duration // default 24 h
	MaxBytes  int64         // of all shards together; JetStream reserves it; default 1 GiB
	Lease     time.Duration // after which an instance that does not renew loses its shards; default 10 s
	MoreRoom  string        // advice if the server has no room; default: options of gputap stream init
}

// MostReplicas is JetStream's own limit of copies.
const MostReplicas = 5

const (
	defaultAge      = 24 * time.Hour
	defaultBytes    = 1 << 30
	defaultLease    = 10 * time.Second
	maxDeadLetters  = 256 << 20
	maxOut          = 64 << 20
	maxMeta         = 1 << 20
	maxLeases       = 8 << 20 // a thousand shards of ten folds
	outAge          = 7 * 24 * time.Hour
	topologyHistory = 8 // revisions, for a person who must repair one
	stateShare      = 4 // checkpoints get a quarter of the bytes of events: a state is far smaller than its events
	// JetStream's shortest window. Batches are deduplicated by their seq, without a time limit, and need no window.
	duplicateWindow = 100 * time.Millisecond
	// A fold that rebuilds its state raises the alerts of all stored events again, with the same ids.
	outDuplicateWindow = 24 * time.Hour
	// A consumer that dies before its next checkpoint reads the same invalid batches again.
	deadLetterWindow = 24 * time.Hour
)

// EnsureStreams creates the topology and the streams of a bus: those of the shards, checkpoints, dead letters and
// outputs, and the buckets of topology and leases. Existing streams get these limits and keep their other settings.
// Another number of shards begins a new generation: EnsureStreams creates its streams, writes the topology, and seals
// the streams of the generation before, so that producers move. The contents stay readable. If two callers race with
// different numbers, one succeeds and the other gets an error. Call again to complete an interrupted call.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) error {
	plan, err := PlanStreams(ctx, js, o)
	if err != nil {
		return err
	}
	return plan.Apply(ctx)
}

// EnsureDeadLetters creates the stream of the dead letters if it does not exist. Limits of an existing one stay.
func EnsureDeadLetters(ctx context.Context, js jetstream.JetStream) error {
	config := deadLetterConfig(maxDeadLetters)
	if _, err := js.CreateStream(ctx, config); err != nil {
		return fmt.Errorf("create JetStream stream %s: %w", config.Name, err)
	}
	return nil
}

// configs returns the streams beside those of the shards; the topology's is the first.
func configs(o StreamOptions) []jetstream.StreamConfig {
	out := streamConfig(schema.OutStream, schema.AlertSubjects)
	out.MaxAge, out.MaxBytes, out.Duplicates = outAge, min(maxOut, o.MaxBytes/16), outDuplicateWindow
	state := streamConfig(schema.StateStream, schema.StateSubjects)
	state.MaxBytes, state.MaxMsgsPerSubject = o.MaxBytes/stateShare, 1
	state.AllowAtomicPublish, state.AllowMsgTTL, state.Compression = true, true, jetstream.S2Compression
	state.Discard = jetstream.DiscardNew // a full stream rejects a new checkpoint; it must not evict an older one
	// A stream that is created again begins above all earlier sequences: an owner of the stream before it can replace
	// no manifest of this one.
	state.FirstSeq = uint64(time.Now().UnixMicro())
	meta := bucketConfig(schema.MetaBucket, topologyHistory)
	meta.MaxBytes = maxMeta
	leases := bucketConfig(schema.LeaseBucket, 1)
	leases.MaxBytes = maxLeases
	if o.Replicas > 1 { // a cluster keeps a stream in memory across restarts; a single server does not
		leases.Storage = jetstream.MemoryStorage
	}
	leases.MaxAge, leases.Duplicates = o.Lease, o.Lease
	leases.AllowRollup = false // every fold may write to the bucket, and a roll-up removes the keys of all folds
	all := []jetstream.StreamConfig{meta, leases, state, out, deadLetterConfig(o.MaxBytes / 8)}
	for i := range all {
		all[i].Replicas = max(o.Replicas, 1)
	}
	return all
}

func shardConfig(shard int, o StreamOptions) jetstream.StreamConfig {
	s := streamConfig(schema.StreamName(shard), schema.ShardSubjects(shard))
	s.MaxAge, s.MaxBytes, s.Replicas = o.MaxAge, max(o.MaxBytes/int64(o.Shards), 1), max(o.Replicas, 1)
	s.Compression, s.DenyDelete = jetstream.S2Compression, true
	return s
}

func deadLetterConfig(budget int64) jetstream.StreamConfig {
	s := streamConfig(schema.DeadLetterStream, schema.DeadLetterSubjects)
	s.MaxBytes, s.Duplicates = min(maxDeadLetters, budget), deadLetterWindow
	return s
}

// bucketConfig is a JetStream key-value bucket.
func bucketConfig(bucket string, history int64) jetstream.StreamConfig {
	s := streamConfig(schema.BucketStream(bucket), schema.KeySubject(bucket, ">"))
	s.MaxMsgsPerSubject, s.Discard, s.AllowRollup, s.DenyDelete = history, jetstream.DiscardNew, true, true
	return s
}

func streamConfig(name, subjects string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, Duplicates: duplicateWindow, AllowDirect: true, Replicas: 1,
	}
}

// OwnStreams returns the streams of gputap in the account, by name.
func OwnStreams(ctx context.Context, js jetstream.JetStream) (map[string]*jetstream.StreamInfo, error) {
	ours := map[string]bool{}
	for _, c := range configs(StreamOptions{}) {
		ours[c.Name] = true
	}
	own := map[string]*jetstream.StreamInfo{}
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		if name := info.Config.Name; ours[name] || strings.HasPrefix(name, schema.StreamPrefix) {
			own[name] = info
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return own, nil
}
