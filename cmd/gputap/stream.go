package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// connectTime is how long a command waits for a bus; daemons wait for ever.
const connectTime = 5 * time.Second

// busCommand is what the commands about a bus have in common.
type busCommand struct {
	p       *app.Process
	bus     config.NATS
	readBus func() (config.NATS, error)
	output  string
}

func streamCommand(p *app.Process) *cobra.Command {
	b := &busCommand{p: p}
	cmd := &cobra.Command{
		Use: "stream", Short: "Manage the JetStream streams of a fleet",
		Example: "  gputap stream init --nats.url nats://bus:4222 --shards 16 --replicas 3\n  gputap stream info --nats.url nats://bus:4222",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return app.Usage(fmt.Errorf("unknown command %q: use init, info, dlq or rm", args[0]))
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

// outputFlag is -o.
func (b *busCommand) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&b.output, "output", "o", "table", "table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// with runs a command on a bus that is there.
func (b *busCommand) with(ctx context.Context, run func(context.Context, jetstream.JetStream) error) (err error) {
	if b.bus, err = b.readBus(); err != nil {
		return app.Usage(err)
	}
	if b.output != "" && b.output != "table" && b.output != "json" {
		return app.Usage(fmt.Errorf("--output %q: use table or json", b.output))
	}
	nc, js, err := b.p.Connect(b.bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := reach(ctx, b.p, b.bus, nc); err != nil {
		return err
	}
	out := &checked{Writer: b.p.Stdout}
	b.p.Stdout = out
	if err := run(ctx, js); err != nil {
		return b.p.NoAnswer(err)
	}
	return out.err
}

// checked remembers that something could not be written, as tables are written without looking.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// reach waits until a connection stands.
func reach(ctx context.Context, p *app.Process, bus config.NATS, nc *nats.Conn) error {
	enough := time.After(connectTime)
	for !nc.IsConnected() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-enough:
			return p.NoBus(bus)
		case <-ctx.Done():
			return fmt.Errorf("connect to NATS: %w", ctx.Err())
		}
	}
	return nil
}

// moment is a time in a table; "" for none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func line(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
