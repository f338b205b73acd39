package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

func streamInitCommand(b *busCommand) *cobra.Command {
	o := bus.StreamOptions{NewShards: 16}
	var bytes config.Bytes
	dryRun := false
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the streams of a bus, or change their limits and number of shards",
		Long: `Create the JetStream streams for events, checkpoints, leases, alerts and dead letters, or change existing streams.
Producers and consumers of a fleet wait until this has been done once. Flags that are not given keep the value of
the bus; a new bus gets 16 shards, 1 copy, 24h and 1GiB.

A different number of shards creates a new generation of streams, and the producers move to it. The streams of the
previous generation are sealed. They stay readable until gputap stream rm --generation removes them.

JetStream reserves disk space: --max-bytes for events, a quarter of it for checkpoints, and up to 3/16 of it (at most
320 MiB) for dead letters and alerts. A cluster reserves --replicas times as much. When the checkpoint stream is
full, new checkpoints are rejected; none is evicted.

` + busExitStatus,
		Example: `  gputap stream init --nats.url nats://bus:4222
  gputap stream init --nats.url nats://bus:4222 --shards 16 --replicas 3 --max-age 48h --max-bytes 400GiB
  gputap stream init --nats.url nats://bus:4222 --shards 32 --dry-run`,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Shards, "shards", 0,
		"number of shards, over which hosts are spread (default: unchanged, or 16 on a new bus)")
	flags.IntVar(&o.Replicas, "replicas", 0,
		"copies of each stream in a cluster (default: unchanged, or 1 on a new bus)")
	flags.DurationVar(&o.MaxAge, "max-age", 0,
		"time for which events are kept (default: unchanged, or 24h on a new bus)")
	flags.Var(&bytes, "max-bytes", "size of the events that are kept in all shards together, such as 64GiB "+
		"(default: unchanged, or 1GiB on a new bus)")
	flags.BoolVar(&dryRun, "dry-run", false, "print the changes without making them")
	out := addOutput(cmd, "table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := validateInit(flags, o); err != nil {
			return app.Usage(err)
		}
		o.MaxBytes = int64(bytes)
		return b.with(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
			return b.init(ctx, js, o, dryRun, out)
		})
	}
	return cmd
}

func validateInit(flags *pflag.FlagSet, o bus.StreamOptions) error {
	for _, name := range []string{"shards", "replicas", "max-age", "max-bytes"} {
		f := flags.Lookup(name)
		if text := f.Value.String(); f.Changed && (text == "0" || text == "0s" || text[0] == '-') {
			return fmt.Errorf("--%s: use more than 0", name)
		}
	}
	switch {
	case o.Shards > schema.MaxShards:
		return fmt.Errorf("--shards %d: use 1 to %d", o.Shards, schema.MaxShards)
	case o.Replicas > bus.MostReplicas:
		return fmt.Errorf("--replicas %d: use 1 to %d", o.Replicas, bus.MostReplicas)
	case o.MaxAge != 0 && o.MaxAge < time.Second:
		return fmt.Errorf("--max-age %s: use 1s or more", o.MaxAge)
	}
	return nil
}

// initJSON is the output of init -o json.
type initJSON struct {
	DryRun   bool            `json:"dry_run"`
	Steps    []bus.Step      `json:"steps"`
	Topology schema.Topology `json:"topology"`
	Replicas int             `json:"replicas"`
	MaxAge   float64         `json:"max_age_seconds"`
	MaxBytes int64           `json:"max_bytes"`
}

func (b *busCommand) init(ctx context.Context, js jetstream.JetStream, o bus.StreamOptions, dryRun bool,
	out *output) error {
	plan, err := bus.PlanStreams(ctx, js, o)
	if err != nil {
		return err
	}
	if !dryRun {
		if err := plan.Apply(ctx); err != nil {
			return err
		}
	}
	has := plan.Options
	result := initJSON{
		dryRun, append([]bus.Step{}, plan.Steps...), plan.Topology, has.Replicas, has.MaxAge.Seconds(), has.MaxBytes,
	}
	return out.write(b.p.Stdout, result, func(w io.Writer) {
		if len(plan.Steps) > 0 {
			table := app.NewTable("ACTION", "NAME", "DETAIL")
			for _, s := range plan.Steps {
				table.Row(s.Action, s.Name, s.Detail)
			}
			table.Write(w)
		}
		status := "streams are ready: NATS reserves"
		switch {
		case dryRun:
			status = "dry run, nothing was changed; NATS would reserve"
		case len(plan.Steps) == 0:
			status = "nothing to change: NATS reserves"
		}
		writeLine(w, "%s %s for events, which it keeps for %s in %s (generation %d)", status,
			app.Bytes(uint64(has.MaxBytes)), has.MaxAge, app.Plural(uint64(has.Shards), "shard", "shards"),
			plan.Topology.Generation)
	})
}
