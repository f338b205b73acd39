package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
)

// connectTime is how long a command waits for a bus; daemons wait for ever.
const connectTime = 5 * time.Second

func streamCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{Use: "stream", Short: "Manage the JetStream streams of a fleet"}
	cmd.AddCommand(streamInitCommand(p))
	return cmd
}

func streamInitCommand(p *app.Process) *cobra.Command {
	bus := config.NATS{URL: os.Getenv("GPUTAP_NATS__URL")}
	o := consumer.StreamOptions{Shards: 1, Replicas: 1, MaxAge: 24 * time.Hour, MaxBytes: 1 << 30}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the streams that producers publish to, or change what they keep",
		Long: `Create the JetStream streams that producers publish to, or change what existing ones keep. Producers and
consumers of a fleet wait until this was done once.`,
		Example: "  gputap stream init --nats.url nats://bus:4222\n  gputap stream init --replicas 3 --max-age 48h --max-bytes 107374182400",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if bus.URL == "" {
				return app.Usage(errors.New("--nats.url: empty: set it to nats://host:4222"))
			}
			return streamInit(cmd.Context(), p, bus, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&bus.URL, "nats.url", bus.URL, "servers, separated by commas (default: $GPUTAP_NATS__URL)")
	flags.StringVar(&bus.CredsFile, "nats.creds_file", "", "credentials file (JWT and seed)")
	flags.StringVar(&bus.NKeyFile, "nats.nkey_file", "", "file of an nkey seed")
	flags.StringVar(&bus.TLS.CAFile, "nats.tls.ca_file", "", "certificate authority of the servers")
	flags.StringVar(&bus.TLS.CertFile, "nats.tls.cert_file", "", "client certificate")
	flags.StringVar(&bus.TLS.KeyFile, "nats.tls.key_file", "", "key of the client certificate")
	flags.IntVar(&o.Replicas, "replicas", o.Replicas, "copies of each stream in a cluster")
	flags.DurationVar(&o.MaxAge, "max-age", o.MaxAge, "how long events are kept")
	flags.Int64Var(&o.MaxBytes, "max-bytes", o.MaxBytes, "bytes of events that are kept")
	return cmd
}

func streamInit(ctx context.Context, p *app.Process, bus config.NATS, o consumer.StreamOptions) error {
	nc, js, err := p.Connect(bus)
	if err != nil {
		return err
	}
	defer nc.Close()
	if !connected(ctx, nc) {
		return p.NoBus(bus)
	}
	if err := consumer.EnsureStreams(ctx, js, o); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Stdout, "streams are ready: %s of events are kept for %s\n", app.Bytes(uint64(o.MaxBytes)), o.MaxAge)
	return err
}

func connected(ctx context.Context, nc *nats.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	for !nc.IsConnected() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return true
}
