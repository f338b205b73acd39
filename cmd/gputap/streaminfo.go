package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

func streamInfoCommand(b *busCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show shards, messages, hosts and consumers of a bus",
		Long: `Show the generations of shards, the contents of each JetStream stream, and the folds: which instance owns which
shard, and its lag in messages. A stream without a generation is left over from an interrupted init. The next
init uses it, or gputap stream rm removes it.

` + busExitStatus,
		Example: "  gputap stream info --nats.url nats://bus:4222\n" +
			"  gputap stream info --nats.url nats://bus:4222 -o json",
	}
	out := addOutput(cmd, "table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return b.with(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
			all, err := readBus(ctx, js)
			if err != nil {
				return err
			}
			return out.write(b.p.Stdout, all, all.write)
		})
	}
	return cmd
}

// busJSON is the output of info -o json.
type busJSON struct {
	Topology *schema.Topology `json:"topology"` // null before gputap stream init
	Streams  []streamJSON     `json:"streams"`
	Folds    []foldJSON       `json:"folds"`
}

type streamJSON struct {
	Stream     string     `json:"stream"`
	Generation int        `json:"generation"` // 0: none
	Shard      *int       `json:"shard"`      // null: not a shard
	Messages   uint64     `json:"messages"`
	Bytes      uint64     `json:"bytes"`
	MaxBytes   int64      `json:"max_bytes"` // reserved
	First      *time.Time `json:"first"`
	Last       *time.Time `json:"last"`
	Hosts      int        `json:"hosts"`
	Subjects   uint64     `json:"subjects"`
	Consumers  int        `json:"consumers"`
	Replicas   int        `json:"replicas"`
	Leader     string     `json:"leader"`
	Lagging    []string   `json:"lagging"` // replicas that are offline or stale
	Sealed     bool       `json:"sealed"`
}

type foldJSON struct {
	Fold  string  `json:"fold"`
	Shard int     `json:"shard"`
	Owner string  `json:"owner"` // "" without a lease
	Lag   *uint64 `json:"lag"`   // messages; null while no instance reads

	lags map[string]uint64 // by the instance that owns the shard; "" for readers that own none
	idle bool              // no reader waits for messages: it is gone, or it is busy
}

func readBus(ctx context.Context, js jetstream.JetStream) (*busJSON, error) {
	all := &busJSON{Folds: []foldJSON{}}
	t, err := bus.ReadTopology(ctx, js)
	switch {
	case err == nil:
		all.Topology = &t
	case !errors.Is(err, bus.ErrNoTopology):
		return nil, err
	}
	own, err := bus.OwnStreams(ctx, js)
	if err != nil {
		return nil, err
	}
	folds := map[string]*foldJSON{} // by fold and shard, as in the keys of leases
	for _, s := range own {
		row := describeStream(s)
		if shard, isShard := shardOf(s.Config.Name); isShard {
			row.Shard = &shard
			generation, _ := t.Find(shard)
			row.Generation = generation.Generation
			if row.Hosts, err = readShard(ctx, js, shard, folds); err != nil {
				return nil, err
			}
		}
		all.Streams = append(all.Streams, row)
	}
	slices.SortFunc(all.Streams, func(a, b streamJSON) int { return strings.Compare(a.order(), b.order()) })
	if own[schema.BucketStream(schema.LeaseBucket)] != nil {
		if err := readOwners(ctx, js, folds); err != nil {
			return nil, err
		}
	}
	for _, f := range folds {
		if f.Owner == "" && f.idle { // the reader was killed; JetStream removes its consumer after five minutes
			continue
		}
		f.Lag = f.lag()
		all.Folds = append(all.Folds, *f)
	}
	slices.SortFunc(all.Folds, func(a, b foldJSON) int {
		return cmp.Or(strings.Compare(a.Fold, b.Fold), cmp.Compare(a.Shard, b.Shard))
	})
	return all, nil
}

// order sorts shards first, by number.
func (s *streamJSON) order() string {
	if s.Shard == nil {
		return "b" + s.Stream
	}
	return fmt.Sprintf("a%08d", *s.Shard)
}

// shardOf returns the shard whose batches a stream stores.
func shardOf(stream string) (shard int, isShard bool) {
	number, found := strings.CutPrefix(stream, schema.StreamPrefix)
	shard, err := strconv.Atoi(number)
	return shard, found && err == nil
}

func describeStream(s *jetstream.StreamInfo) streamJSON {
	row := streamJSON{
		Stream: s.Config.Name, Messages: s.State.Msgs, Bytes: s.State.Bytes, MaxBytes: s.Config.MaxBytes,
		Subjects: s.State.NumSubjects, Consumers: s.State.Consumers, Replicas: s.Config.Replicas,
		Sealed: s.Config.Sealed, Lagging: []string{},
	}
	if s.State.Msgs > 0 {
		row.First, row.Last = &s.State.FirstTime, &s.State.LastTime
	}
	if c := s.Cluster; c != nil {
		row.Leader = c.Leader
		for _, r := range c.Replicas {
			if r.Offline || !r.Current {
				row.Lagging = append(row.Lagging, r.Name)
			}
		}
	}
	return row
}

// readShard counts the hosts in the subjects of a shard, and adds the folds that read it. A stream that was removed in
// the meantime has neither.
func readShard(ctx context.Context, js jetstream.JetStream, shard int, folds map[string]*foldJSON) (int, error) {
	stream, err := js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the state of shard %d: %w", shard, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return 0, fmt.Errorf("list the subjects of shard %d: %w", shard, err)
	}
	hosts := map[string]bool{}
	for subject := range info.State.Subjects {
		if kind := strings.LastIndexByte(subject, '.'); kind > 0 {
			hosts[subject[:kind]] = true
		}
	}
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		fold, id, isReader := strings.Cut(c.Name, fmt.Sprintf("-%03d-", shard))
		if !isReader || strings.Contains(id, "-") {
			continue // not a consumer of gputap, whose names are fold-shard-id
		}
		key := fmt.Sprintf("%s.%d", fold, shard)
		f := folds[key]
		if f == nil {
			f = &foldJSON{Fold: fold, Shard: shard, lags: map[string]uint64{}, idle: true}
			folds[key] = f
		}
		owner := c.Config.Metadata[consumer.OwnerKey]
		// the consumer of a restarted reader disappears soon
		if least, seen := f.lags[owner]; !seen || c.NumPending < least {
			f.lags[owner] = c.NumPending
		}
		f.idle = f.idle && c.NumWaiting == 0
	}
	if err := list.Err(); err != nil {
		return 0, fmt.Errorf("list the consumers of shard %d: %w", shard, err)
	}
	return len(hosts), nil
}

// readOwners adds the instances that hold the leases.
func readOwners(ctx context.Context, js jetstream.JetStream, folds map[string]*foldJSON) error {
	leases, err := js.KeyValue(ctx, schema.LeaseBucket)
	if err != nil {
		return fmt.Errorf("read the leases: %w", err)
	}
	keys, err := leases.Keys(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		return fmt.Errorf("read the leases: %w", err)
	}
	for _, key := range keys {
		dot := strings.LastIndexByte(key, '.')
		if dot < 1 || strings.HasPrefix(key, "m.") {
			continue
		}
		shard, err := strconv.Atoi(key[dot+1:])
		entry, expired := leases.Get(ctx, key)
		if err != nil || expired != nil {
			continue // not the lease of a shard, or it has just expired
		}
		var lease struct {
			Instance string `json:"instance"`
		}
		if json.Unmarshal(entry.Value(), &lease) != nil || lease.Instance == "" {
			lease.Instance = "?"
		}
		if folds[key] == nil {
			folds[key] = &foldJSON{Fold: key[:dot], Shard: shard}
		}
		folds[key].Owner = lease.Instance
	}
	return nil
}

// lag returns the lag of the owner. Without an owner, or if the owner's consumer has no owner metadata, it returns the
// smallest lag of all readers.
func (f *foldJSON) lag() *uint64 {
	if lag, reads := f.lags[f.Owner]; reads && f.Owner != "" {
		return &lag
	}
	if len(f.lags) == 0 {
		return nil
	}
	return new(slices.Min(slices.Collect(maps.Values(f.lags))))
}

func (all *busJSON) write(w io.Writer) {
	if t := all.Topology; t != nil {
		writeLine(w, "generation %d: %s, from %d to %d; closed generations: %d\n", t.Generation,
			app.Plural(uint64(t.Shards), "shard", "shards"), t.First, t.First+t.Shards-1, len(t.Previous))
	} else {
		writeLine(w, "NATS has no gputap topology; run gputap stream init\n")
	}
	table := app.NewTable("GEN", "SHARD", "STREAM", "MESSAGES", "BYTES", "RESERVED", "FIRST", "LAST", "HOSTS",
		"CONSUMERS", "COPIES", "LEADER", "STATE")
	for _, s := range all.Streams {
		generation, shard := "", ""
		if s.Shard != nil {
			generation, shard = "none", strconv.Itoa(*s.Shard)
		}
		if s.Generation > 0 {
			generation = strconv.Itoa(s.Generation)
		}
		var first, last time.Time
		if s.First != nil {
			first, last = *s.First, *s.Last
		}
		table.Row(generation, shard, s.Stream, s.Messages, app.Amount(s.Bytes), app.Amount(max(s.MaxBytes, 0)),
			timestamp(first), timestamp(last), s.Hosts, s.Consumers, s.Replicas, s.Leader, s.state())
	}
	table.Write(w)
	if len(all.Folds) == 0 {
		return
	}
	writeLine(w, "")
	folds := app.NewTable("FOLD", "SHARD", "LAG", "OWNER")
	for _, f := range all.Folds {
		lag := "no reader"
		if f.Lag != nil {
			lag = strconv.FormatUint(*f.Lag, 10)
		}
		folds.Row(f.Fold, f.Shard, lag, f.Owner)
	}
	folds.Write(w)
}

func (s *streamJSON) state() string {
	var words []string
	if s.Sealed {
		words = append(words, "sealed")
	}
	if len(s.Lagging) > 0 {
		words = append(words, "stale: "+strings.Join(s.Lagging, " "))
	}
	return strings.Join(words, ", ")
}
