package consumer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// StreamOptions say how much the bus keeps, and in how many shards. Zero values keep what the bus has; a new
// bus gets the defaults.
type StreamOptions struct {
	NewShards int           // of a bus that has none, where Shards is 0; 1
	Shards    int           // 1
	Replicas  int           // 1
	MaxAge    time.Duration // 24 h
	MaxBytes  int64         // of all shards together, and JetStream reserves it; 1 GiB
	Lease     time.Duration // after which the shards of an instance that is gone are another's; 10 s
}

// MostReplicas is JetStream's own limit of copies.
const MostReplicas = 5

const (
	defaultAge     = 24 * time.Hour
	defaultBytes   = 1 << 30
	maxDeadLetters = 256 << 20
	maxOut         = 64 << 20
	maxMeta        = 1 << 20
	maxLeases      = 8 << 20 // a thousand shards of ten folds
	outAge         = 7 * 24 * time.Hour
	defaultLease   = 10 * time.Second
	topologies     = 8 // revisions that are kept, for a person who must repair one
	// Checkpoints share of the budget of events: a fold's state is far smaller than what it has read.
	stateShare = 4
	// The shortest window JetStream takes: a batch is known by its seq, for ever, and needs none.
	duplicateWindow = 100 * time.Millisecond
	// A fold that starts again raises the alerts of all that is stored again, by the same ids.
	outDuplicateWindow = 24 * time.Hour
	// A consumer that dies before its next checkpoint meets the same batches again.
	deadLetterWindow = 24 * time.Hour
)

// EnsureStreams gives a bus its topology and its streams: the shards', the checkpoints', the dead letters',
// the consumers' own, and the buckets of topology and leases. Those that exist get these limits and keep
// whatever else they were given. Another number of shards begins a new generation: its streams are made, the
// topology names them, and the streams of the one before are sealed, so that producers move over; what these
// hold stays readable. Of two callers at once with other numbers one wins, and the other gets an error; a call
// that was broken off is made good by the next.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, o StreamOptions) error {
	plan, err := PlanStreams(ctx, js, o)
	if err != nil {
		return err
	}
	return plan.Apply(ctx)
}

// configs are the streams beside the shards', as o says; the topology's is the first.
func configs(o StreamOptions) []jetstream.StreamConfig {
	out := streamConfig(schema.OutStream, schema.AlertSubjects)
	out.MaxAge, out.MaxBytes, out.Duplicates = outAge, min(maxOut, o.MaxBytes/16), outDuplicateWindow
	state := streamConfig(schema.StateStream, schema.StateSubjects)
	state.MaxBytes, state.MaxMsgsPerSubject = o.MaxBytes/stateShare, 1
	state.AllowAtomicPublish, state.AllowMsgTTL, state.Compression = true, true, jetstream.S2Compression
	state.Discard = jetstream.DiscardNew // a checkpoint that has no room is refused: no older one may go for it
	// Made anew, it has sequences that the one before never had: whoever knows a manifest of that can replace none of this.
	state.FirstSeq = uint64(time.Now().UnixMicro())
	meta := bucketConfig(schema.MetaBucket, topologies)
	meta.MaxBytes = maxMeta
	leases := bucketConfig(schema.LeaseBucket, 1)
	leases.MaxBytes = maxLeases
	if o.Replicas > 1 { // a cluster knows of a stream without its messages; a single server forgets one in memory when it ends
		leases.Storage = jetstream.MemoryStorage
	}
	leases.MaxAge, leases.Duplicates = o.Lease, o.Lease
	leases.AllowRollup = false // every fold may write to it, and a roll-up removes the keys of all
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

func streamConfig(name, subjects string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subjects}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, Duplicates: duplicateWindow, AllowDirect: true, Replicas: 1,
	}
}

// bucketConfig is a bucket of keys as every client of JetStream knows them.
func bucketConfig(bucket string, history int64) jetstream.StreamConfig {
	s := streamConfig(schema.BucketStream(bucket), schema.KeySubject(bucket, ">"))
	s.MaxMsgsPerSubject, s.Discard, s.AllowRollup, s.DenyDelete = history, jetstream.DiscardNew, true, true
	return s
}

// keyToken makes one token of a bucket's key of a name. A key holds less than a subject: what it may not hold becomes an
// underscore, and a sum of the name follows, so that two names stay two.
func keyToken(name string) string {
	token := schema.Token(name)
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_/=", r) {
			return r
		}
		return '_'
	}, token)
	if clean == token {
		return token
	}
	return fmt.Sprintf("%s-%08x", clean, crc32.ChecksumIEEE([]byte(name)))
}

// deadLetterConfig bounds the dead letters to their share of a budget, if there is one.
func deadLetterConfig(budget int64) jetstream.StreamConfig {
	s := streamConfig(schema.DeadLetterStream, schema.DeadLetterSubjects)
	s.MaxBytes, s.Duplicates = maxDeadLetters, deadLetterWindow
	if budget > 0 {
		s.MaxBytes = min(maxDeadLetters, budget)
	}
	return s
}

// settleStream tries ensureStream again while a server says what it may take back.
func settleStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	for retries := 0; ; retries++ {
		err := ensureStream(ctx, js, want)
		if retries >= worthRetrying(err) || !sleep(ctx, retryInterval) {
			return err
		}
	}
}

// ensureStream creates what is not there alone: a server refuses to create what it has no room for before it sees that it has it.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	err := adjustStream(ctx, js, want)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, want)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody else was faster
		err = adjustStream(ctx, js, want)
	}
	if err != nil {
		return fmt.Errorf("create JetStream stream %s: %w", want.Name, err)
	}
	return nil
}

// adjustStream sets an existing stream's limits, and takes back what lets one message remove others.
func adjustStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	s, err := js.Stream(ctx, want.Name)
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	if sameLimits(have, want) {
		return nil
	}
	have.MaxAge, have.MaxBytes, have.Replicas = want.MaxAge, want.MaxBytes, want.Replicas
	have.Duplicates = max(have.Duplicates, want.Duplicates)
	if !want.AllowRollup { // markers of what has expired would turn it on again
		have.AllowRollup, have.SubjectDeleteMarkerTTL = false, 0
	}
	_, err = js.UpdateStream(ctx, have)
	return err
}

func sameLimits(have, want jetstream.StreamConfig) bool {
	return have.MaxAge == want.MaxAge && have.MaxBytes == want.MaxBytes && have.Replicas == want.Replicas && have.Duplicates >= want.Duplicates &&
		(want.AllowRollup || !have.AllowRollup)
}

// OwnStreams are the JetStream streams of an account that are gputap's, by name.
func OwnStreams(ctx context.Context, js jetstream.JetStream) (map[string]*jetstream.StreamInfo, error) {
	own := map[string]*jetstream.StreamInfo{}
	for _, c := range configs(StreamOptions{}) {
		own[c.Name] = nil
	}
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		name := info.Config.Name
		if _, ours := own[name]; ours || strings.HasPrefix(name, schema.StreamPrefix) || strings.HasPrefix(name, trialPrefix) {
			own[name] = info
		}
	}
	for name, info := range own {
		if info == nil {
			delete(own, name)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the streams of the bus: %w", err)
	}
	return own, nil
}
