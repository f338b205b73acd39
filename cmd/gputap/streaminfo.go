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
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

func streamInfoCommand(b *busCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show shards, messages, hosts and consumers of a bus",
		Long: `Show the generations of shards, the contents of each JetStream stream, and the folds: which instance owns which
shard, and its lag in messages. A stream without a generation is left over from an interrupted init. The next
init uses it, or gputap stream rm removes it.`,
		Example: "  gputap stream info --nats.url nats://bus:4222\n" +
			"  gputap stream info --nats.url nats://bus:4222 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.with(cmd.Context(), b.info)
		},
	}
	outputFlag(cmd, &b.output)
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

func (b *busCommand) info(ctx context.Context, js jetstream.JetStream) error {
	var all busJSON
	t, err := bus.ReadTopology(ctx, js)
	switch {
	case err == nil:
		all.Topology = &t
	case !errors.Is(err, bus.ErrNoTopology):
		return err
	}
	own, err := bus.OwnStreams(ctx, js)
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
		if f.Owner == "" && f.idle { // the reader was killed; JetStream removes its consumer after five minutes
			continue
		}
		f.Lag = f.lag()
		all.Folds = append(all.Folds, f)
	}
	slices.SortFunc(all.Folds, func(a, b foldJSON) int {
		return strings.Compare(leaseKey(a.Fold, a.Shard),
			leaseKey(b.Fold, b.Shard))
	})
	if b.output == "json" {
		return json.NewEncoder(b.p.Stdout).Encode(all)
	}
	all.write(b.p.Stdout)
	return nil
}

// order sorts shards first, by number.
func (s *streamJSON) order() string {
	if s.Shard == nil {
		return "b" + s.Stream
	}
	return fmt.Sprintf("a%08d", *s.Shard)
}

func leaseKey(fold string, shard int) string { return fmt.Sprintf("%s.%08d", fold, shard) }

func describeStream(ctx context.Context, js jetstream.JetStream, t schema.Topology, s *jetstream.StreamInfo) (
	streamJSON, error) {
	row := streamJSON{
		Stream: s.Config.Name, Messages: s.State.Msgs, Bytes: s.State.Bytes, MaxBytes: s.Config.MaxBytes,
		Subjects:  s.State.NumSubjects,
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

// hostsOf counts the hosts in the subjects of a stream.
func hostsOf(ctx context.Context, js jetstream.JetStream, name string) (int, error) {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil // removed in the meantime
	}
	if err != nil {
		return 0, fmt.Errorf("read the state of %s: %w", name, err)
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

// readers adds the folds that read a shard. The names of their JetStream consumers are fold-shard-id.
func readers(ctx context.Context, js jetstream.JetStream, shard int, folds map[string]foldJSON) error {
	stream, err := js.Stream(ctx, schema.StreamName(shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state of shard %d: %w", shard, err)
	}
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		parts := strings.Split(c.Name, "-")
		if len(parts) < 3 || parts[len(parts)-2] != fmt.Sprintf("%03d", shard) {
			continue // not a consumer of gputap
		}
		fold := strings.Join(parts[:len(parts)-2], "-")
		f, seen := folds[leaseKey(fold, shard)]
		if !seen {
			f = foldJSON{Fold: fold, Shard: shard, lags: map[string]uint64{}, idle: true}
		}
		owner := c.Config.Metadata[consumer.OwnerKey]
		// the consumer of a restarted reader disappears soon
		if least, seen := f.lags[owner]; !seen || c.NumPending < least {
			f.lags[owner] = c.NumPending
		}
		f.idle = f.idle && c.NumWaiting == 0
		folds[leaseKey(fold, shard)] = f
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the consumers of shard %d: %w", shard, err)
	}
	return nil
}

// owners adds the instances that hold the leases.
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
			continue // not the lease of a shard, or it has just expired
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

// lag returns the lag of the owner. Without an owner, or if the owner's consumer has no owner metadata, it returns the
// smallest lag of all readers.
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
		writeLine(w, "generation %d: %s, from %d to %d; closed generations: %d\n", t.Generation,
			app.Plural(uint64(t.Shards), "shard", "shards"),
			t.First, t.First+t.Shards-1, len(t.Previous))
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
			timestamp(first), timestamp(last),
			s.Hosts, s.Consumers, s.Replicas, s.Leader, s.state())
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
