package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

func streamInfoCommand(b *busCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show what the bus holds: shards, messages, hosts, readers",
		Long: `Show the generations of shards and what each JetStream stream holds, and the folds that read: who owns which shard,
and how many messages it is behind. A stream of no generation is left over from an init that was broken off: a
later one uses it, or gputap stream rm removes it.`,
		Example: "  gputap stream info --nats.url nats://bus:4222\n  gputap stream info -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd.Context(), b.info)
		},
	}
	b.outputFlag(cmd)
	return cmd
}

// busJSON is what info says with -o json.
type busJSON struct {
	Topology *schema.Topology `json:"topology"` // null: nobody has set the bus up
	Streams  []streamJSON     `json:"streams"`
	Folds    []foldJSON       `json:"folds"`
}

type streamJSON struct {
	Stream     string     `json:"stream"`
	Generation int        `json:"generation"` // 0: of none
	Shard      *int       `json:"shard"`      // null: no shard's
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
	Lagging    []string   `json:"lagging"` // replicas that are offline or behind
	Sealed     bool       `json:"sealed"`
}

type foldJSON struct {
	Fold  string  `json:"fold"`
	Shard int     `json:"shard"`
	Owner string  `json:"owner"` // "" without a lease
	Lag   *uint64 `json:"lag"`   // messages; null while nobody reads

	lags map[string]uint64 // by the instance that reads as owner; "": who owns nothing
	idle bool              // nobody waits for messages: its reader is gone, or has enough to do
}

func (b *busCommand) info(ctx context.Context, js jetstream.JetStream) error {
	var all busJSON
	t, err := consumer.ReadTopology(ctx, js)
	switch {
	case err == nil:
		all.Topology = &t
	case !errors.Is(err, consumer.ErrNoTopology):
		return err
	}
	own, err := consumer.OwnStreams(ctx, js)
	if err != nil {
		return err
	}
	folds := map[string]foldJSON{}
	for _, s := range own {
		row, err := describeStream(ctx, js, t, s)
		if err != nil {
			return err
		}
		all.Streams = append(all.Streams, row)
		if row.Shard != nil {
			if err := readers(ctx, js, *row.Shard, folds); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(all.Streams, func(a, b streamJSON) int { return strings.Compare(a.order(), b.order()) })
	if own[schema.BucketStream(schema.LeaseBucket)] != nil {
		if err := owners(ctx, js, folds); err != nil {
			return err
		}
	}
	all.Folds = []foldJSON{}
	for _, f := range folds {
		if f.Owner == "" && f.idle { // JetStream forgets the consumer of who was killed in five minutes
			continue
		}
		f.Lag = f.lag()
		all.Folds = append(all.Folds, f)
	}
	slices.SortFunc(all.Folds, func(a, b foldJSON) int { return strings.Compare(leaseKey(a.Fold, a.Shard), leaseKey(b.Fold, b.Shard)) })
	if b.output == "json" {
		return json.NewEncoder(b.p.Stdout).Encode(all)
	}
	all.write(b.p.Stdout)
	return nil
}

// order puts shards first, by number.
func (s *streamJSON) order() string {
	if s.Shard == nil {
		return "b" + s.Stream
	}
	return fmt.Sprintf("a%08d", *s.Shard)
}

func leaseKey(fold string, shard int) string { return fmt.Sprintf("%s.%08d", fold, shard) }

func describeStream(ctx context.Context, js jetstream.JetStream, t schema.Topology, s *jetstream.StreamInfo) (streamJSON, error) {
	row := streamJSON{
		Stream: s.Config.Name, Messages: s.State.Msgs, Bytes: s.State.Bytes, MaxBytes: s.Config.MaxBytes, Subjects: s.State.NumSubjects,
		Consumers: s.State.Consumers, Replicas: s.Config.Replicas, Sealed: s.Config.Sealed, Lagging: []string{},
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
	number, isShard := strings.CutPrefix(s.Config.Name, schema.StreamPrefix)
	shard, err := strconv.Atoi(number)
	if !isShard || err != nil {
		return row, nil
	}
	row.Shard = &shard
	if g, found := t.Find(shard); found {
		row.Generation = g.Generation
	}
	row.Hosts, err = hostsOf(ctx, js, s.Config.Name)
	return row, err
}

// hostsOf counts the hosts in a stream's subjects.
func hostsOf(ctx context.Context, js jetstream.JetStream, name string) (int, error) {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil // removed meanwhile
	}
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", name, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return 0, fmt.Errorf("list the subjects of %s: %w", name, err)
	}
	hosts := map[string]bool{}
	for subject := range info.State.Subjects {
		if kind := strings.LastIndexByte(subject, '.'); kind > 0 {
			hosts[subject[:kind]] = true
		}
	}
	return len(hosts), nil
}

// readers adds the folds that read a shard, by the names of their JetStream consumers: fold-shard-id.
func readers(ctx context.Context, js jetstream.JetStream, shard int, folds map[string]foldJSON) error {
	stream, err := js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at shard %d: %w", shard, err)
	}
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		parts := strings.Split(c.Name, "-")
		if len(parts) < 3 || parts[len(parts)-2] != fmt.Sprintf("%03d", shard) {
			continue // somebody else's
		}
		fold := strings.Join(parts[:len(parts)-2], "-")
		f, seen := folds[leaseKey(fold, shard)]
		if !seen {
			f = foldJSON{Fold: fold, Shard: shard, lags: map[string]uint64{}, idle: true}
		}
		owner := c.Config.Metadata[consumer.OwnerKey]
		if least, seen := f.lags[owner]; !seen || c.NumPending < least { // a reader that was reset is gone soon
			f.lags[owner] = c.NumPending
		}
		f.idle = f.idle && c.NumWaiting == 0
		folds[leaseKey(fold, shard)] = f
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the readers of shard %d: %w", shard, err)
	}
	return nil
}

// owners adds who has a lease.
func owners(ctx context.Context, js jetstream.JetStream, folds map[string]foldJSON) error {
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
		entry, gone := leases.Get(ctx, key)
		if err != nil || gone != nil {
			continue // no lease of a shard, or it has just ended
		}
		var lease struct {
			Instance string `json:"instance"`
		}
		if json.Unmarshal(entry.Value(), &lease) != nil || lease.Instance == "" {
			lease.Instance = "?"
		}
		f := folds[leaseKey(key[:dot], shard)]
		f.Fold, f.Shard, f.Owner = key[:dot], shard, lease.Instance
		folds[leaseKey(f.Fold, shard)] = f
	}
	return nil
}

// lag is the owner's. Without one, or when its build does not say that it reads, it is that of who reads furthest.
func (f *foldJSON) lag() *uint64 {
	if lag, reads := f.lags[f.Owner]; reads && f.Owner != "" {
		return &lag
	}
	var least *uint64
	for _, lag := range f.lags {
		if least == nil || lag < *least {
			least = &lag
		}
	}
	return least
}

func (all *busJSON) write(w io.Writer) {
	if t := all.Topology; t != nil {
		line(w, "generation %d: %s, from %d to %d; closed generations: %d\n", t.Generation, plural(uint64(t.Shards), "shard", "shards"),
			t.First, t.First+t.Shards-1, len(t.Previous))
	} else {
		line(w, "the bus has no topology: set it up with gputap stream init\n")
	}
	table := app.NewTable("GEN", "SHARD", "STREAM", "MESSAGES", "BYTES", "RESERVED", "FIRST", "LAST", "HOSTS", "CONSUMERS", "COPIES", "LEADER", "STATE")
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
		table.Row(generation, shard, s.Stream, s.Messages, app.Amount(s.Bytes), app.Amount(max(s.MaxBytes, 0)), moment(first), moment(last),
			s.Hosts, s.Consumers, s.Replicas, s.Leader, s.state())
	}
	table.Write(w)
	if len(all.Folds) == 0 {
		return
	}
	line(w, "")
	folds := app.NewTable("FOLD", "SHARD", "LAG", "OWNER")
	for _, f := range all.Folds {
		lag := "nobody reads"
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
		words = append(words, "behind: "+strings.Join(s.Lagging, " "))
	}
	return strings.Join(words, ", ")
}
