package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// connectTime is how long a command waits for NATS. Daemons retry without end.
var connectTime = 5 * time.Second // tests shorten it

const busExitStatus = "Exit status: 0 success; 1 an error; 2 wrong flags; 5 NATS is unreachable."

// busCommand is the common part of the commands about a bus.
type busCommand struct {
	p       *app.Process
	readBus func() (config.NATS, error)
}

func streamCommand(p *app.Process) *cobra.Command {
	b := &busCommand{p: p}
	cmd := &cobra.Command{
		Use: "stream", Short: "Create, show and remove the JetStream streams of a fleet",
		Long: `Create, show and remove the JetStream streams of a fleet.

` + busExitStatus,
		Example: "  gputap stream init --nats.url nats://bus:4222 --shards 16 --replicas 3\n" +
			"  gputap stream info --nats.url nats://bus:4222",
	}
	b.readBus = config.BusFlags(cmd.PersistentFlags())
	cmd.AddCommand(streamInitCommand(b), streamInfoCommand(b), streamDLQCommand(b), streamRemoveCommand(b))
	for _, c := range cmd.Commands() {
		c.Args, c.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
	}
	return group(cmd)
}

// with connects to NATS, runs a command and returns its error or that of its output.
func (b *busCommand) with(ctx context.Context, run func(context.Context, jetstream.JetStream) error) error {
	conns, js, err := b.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer conns[0].Close()
	out := &app.Output{Writer: b.p.Stdout}
	b.p.Stdout = out
	if err := run(ctx, js); err != nil {
		return b.p.ExplainTimeout(err)
	}
	return out.Err
}

// connect connects n times, and waits until each connection is established. The caller closes them.
func (b *busCommand) connect(ctx context.Context, n int) (conns []*nats.Conn, js jetstream.JetStream, err error) {
	cfg, err := b.readBus()
	if err != nil {
		return nil, nil, app.Usage(err)
	}
	for len(conns) < n && err == nil {
		var nc *nats.Conn
		if nc, js, err = b.p.Dial(ctx, cfg, connectTime); err == nil {
			conns = append(conns, nc)
		}
	}
	if err != nil {
		closeAll(conns)
	}
	return conns, js, err
}

func closeAll(conns []*nats.Conn) {
	for _, nc := range conns {
		nc.Close()
	}
}
