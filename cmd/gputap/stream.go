package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// connectTime is how long a command waits for NATS. Daemons retry without end.
var connectTime = 5 * time.Second // tests shorten it

// busCommand is the common part of the commands about a bus.
type busCommand struct {
	p       *app.Process
	bus     config.NATS
	readBus func() (config.NATS, error)
	output  string
}

func streamCommand(p *app.Process) *cobra.Command {
	b := &busCommand{p: p}
	cmd := &cobra.Command{
		Use: "stream", Short: "Create, show and remove the JetStream streams of a fleet",
		Long: `Create, show and remove the JetStream streams of a fleet.

Exit status: 0 success; 1 an error; 2 wrong flags; 5 NATS is unreachable.`,
		Example: "  gputap stream init --nats.url nats://bus:4222 --shards 16 --replicas 3\n" +
			"  gputap stream info --nats.url nats://bus:4222",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return app.Usage(fmt.Errorf("unknown command %q; use init, info, dlq or rm", args[0]))
			}
			return cmd.Help()
		},
	}
	b.readBus = config.BusFlags(cmd.PersistentFlags())
	cmd.AddCommand(streamInitCommand(b), streamInfoCommand(b), streamDLQCommand(b), streamRemoveCommand(b))
	for _, c := range cmd.Commands() {
		c.Args, c.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
	}
	return cmd
}

// with connects to NATS, runs a command and returns its error or that of its output.
func (b *busCommand) with(ctx context.Context, run func(context.Context, jetstream.JetStream) error) (err error) {
	if b.bus, err = b.readBus(); err != nil {
		return app.Usage(err)
	}
	if b.output != "" { // the command has the flag
		if err := checkOutput(b.output); err != nil {
			return err
		}
	}
	nc, js, err := b.p.Connect(b.bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := reach(ctx, b.p, b.bus, nc); err != nil {
		return err
	}
	out := &errorWriter{Writer: b.p.Stdout}
	b.p.Stdout = out
	if err := run(ctx, js); err != nil {
		return b.p.ExplainTimeout(err)
	}
	return out.err
}

// reach waits until the connection is established.
func reach(ctx context.Context, p *app.Process, bus config.NATS, nc *nats.Conn) error {
	enough := time.After(connectTime)
	for !nc.IsConnected() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-enough:
			return p.ConnectError(bus)
		case <-ctx.Done():
			return fmt.Errorf("connect to NATS: %w", ctx.Err())
		}
	}
	return nil
}
