package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

func streamInitCommand(b *busCommand) *cobra.Command {
	o := consumer.StreamOptions{NewShards: 16}
	var bytes config.Bytes
	dryRun := false
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Set a bus up, or change what it keeps and in how many shards",
		Long: `Create the JetStream streams that producers publish to and the consumers' own, or change what existing ones
keep. Producers and consumers of a fleet wait until this was done once. What is not asked for stays as the bus
has it; a new bus gets 16 shards, 1 copy, 24h and 1GiB.

Another number of shards begins a new generation: new streams, to which the producers move by themselves. Those of
the generation before are sealed; what they hold stays readable until gputap stream rm --generation removes it.

JetStream reserves what streams may grow to: --max-bytes of events, a quarter of it for checkpoints, and up to
3/16 of it, at most 320 MiB, for dead letters and alerts; that many times --replicas, over the servers of a
cluster. When checkpoints are full, no older one goes: the next is refused.`,
		Example: `  gputap stream init --nats.url nats://bus:4222
  gputap stream init --shards 16 --replicas 3 --max-age 48h --max-bytes 400GiB
  gputap stream init --shards 32 --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"shards", "replicas", "max-age", "max-bytes"} {
				f := cmd.Flags().Lookup(name)
				if text := f.Value.String(); f.Changed && (text == "0" || text == "0s" || text == "" || text[0] == '-') {
					return app.Usage(fmt.Errorf("--%s: use more than 0", name))
				}
			}
			if o.MaxBytes = int64(bytes); o.Shards > schema.MostShards {
				return app.Usage(fmt.Errorf("--shards %d: use 1 to %d", o.Shards, schema.MostShards))
			}
			if o.Replicas > consumer.MostReplicas {
				return app.Usage(fmt.Errorf("--replicas %d: use 1 to %d", o.Replicas, consumer.MostReplicas))
			}
			if o.MaxAge != 0 && o.MaxAge < time.Second {
				return app.Usage(fmt.Errorf("--max-age %s: use 1s or more", o.MaxAge))
			}
			return b.with(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				return b.init(ctx, js, o, dryRun)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Shards, "shards", 0, "streams over which hosts are spread (default: as the bus has it, else 16)")
	flags.IntVar(&o.Replicas, "replicas", 0, "copies of each stream in a cluster (default: as the bus has it, else 1)")
	flags.DurationVar(&o.MaxAge, "max-age", 0, "how long events are kept (default: as the bus has it, else 24h)")
	flags.Var(&bytes, "max-bytes", "events that are kept, in all shards together, as 64GiB (default: as the bus has it, else 1GiB)")
	flags.BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	b.outputFlag(cmd)
	return cmd
}

// initJSON is what init says with -o json.
type initJSON struct {
	DryRun   bool            `json:"dry_run"`
	Steps    []consumer.Step `json:"steps"`
	Topology schema.Topology `json:"topology"`
	Replicas int             `json:"replicas"`
	MaxAge   float64         `json:"max_age_seconds"`
	MaxBytes int64           `json:"max_bytes"`
}

func (b *busCommand) init(ctx context.Context, js jetstream.JetStream, o consumer.StreamOptions, dryRun bool) error {
	plan, err := consumer.PlanStreams(ctx, js, o)
	if err != nil {
		return err
	}
	if !dryRun {
		if err := plan.Apply(ctx); err != nil {
			return err
		}
	}
	has := plan.Options
	if b.output == "json" {
		return json.NewEncoder(b.p.Stdout).Encode(initJSON{
			dryRun, append([]consumer.Step{}, plan.Steps...), plan.Topology, has.Replicas, has.MaxAge.Seconds(), has.MaxBytes,
		})
	}
	if len(plan.Steps) > 0 {
		table := app.NewTable("ACTION", "NAME", "DETAIL")
		for _, s := range plan.Steps {
			table.Row(s.Action, s.Name, s.Detail)
		}
		table.Write(b.p.Stdout)
	}
	kept := fmt.Sprintf("%s of events are kept for %s in %s (generation %d)", app.Bytes(uint64(has.MaxBytes)), has.MaxAge,
		plural(uint64(has.Shards), "shard", "shards"), plan.Topology.Generation)
	switch {
	case dryRun:
		line(b.p.Stdout, "nothing was changed; after it %s", kept)
	case len(plan.Steps) == 0:
		line(b.p.Stdout, "nothing to change: %s", kept)
	default:
		line(b.p.Stdout, "streams are ready: %s", kept)
	}
	return nil
}
