package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/config"
)

// mostConnections bounds --connections: one takes some 100,000 batches a second.
const mostConnections = 256

// simulation is what the flags of gputap simulate say.
type simulation struct {
	simulate.Options
	bus         config.NATS
	readBus     func() (config.NATS, error)
	connections int
	output      string
}

func simulateCommand(p *app.Process) *cobra.Command {
	var c simulation
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Replay a recorded run as many hosts, without GPUs",
		Long: `Replay a recorded run as the events of many hosts: for load tests of a bus and its consumers, and to try
dashboards without GPUs. Each host has its own name, GPUs, processes, addresses and clock. It ends after
--duration or at Ctrl-C, once what was made is stored. Exit status 4: not all of it is.`,
		Example: `  gputap simulate --nats.url nats://bus:4222
  gputap simulate --hosts 1000 --events-per-second 200000 --duration 60s -o json
  gputap simulate --hosts 50 --lose 0.01 --log truth.log`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), p) },
	}
	flags := cmd.Flags()
	c.readBus = config.BusFlags(flags)
	flags.IntVar(&c.connections, "connections", 4, "connections that the hosts share")
	flags.IntVar(&c.Hosts, "hosts", 100, "how many hosts: sim-0000, sim-0001, …")
	flags.Float64Var(&c.Rate, "events-per-second", 20_000, "events of all hosts together")
	flags.DurationVar(&c.Duration, "duration", 0, "how long; 0: until Ctrl-C")
	flags.StringVar(&c.Cluster, "cluster", "sim", "name of their cluster")
	flags.Uint64Var(&c.Seed, "seed", 1, "equal seeds make equal hosts and events")
	flags.StringVar(&c.Profile, "profile", "", "a recording: batches with their lengths before them, gzip or not (default: a PyTorch run)")
	flags.DurationVar(&c.BatchAge, "batch-age", time.Second, "longest time that a batch spans; 50ms is what producers do")
	flags.DurationVar(&c.Drain, "drain", 10*time.Second, "how long the last batches may take to be stored")
	flags.Float64Var(&c.Lose, "lose", 0, "part of the batches that is withheld and told as lost, from 0 to 1")
	flags.BoolVar(&c.Restart, "restart", false, "each host's producer starts anew whenever the recording does")
	flags.StringVar(&c.LogPath, "log", "", "new file that gets every batch before it is published")
	flags.BoolVar(&c.Resume, "resume", false, "the file of --log may be there, of a simulation that was killed: what may not have been stored is published again")
	flags.StringVarP(&c.output, "output", "o", "table", "summary at the end: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *simulation) run(ctx context.Context, p *app.Process) (err error) {
	if err := c.check(); err != nil {
		return app.Usage(err)
	}
	if c.bus, err = c.readBus(); err != nil {
		return app.Usage(err)
	}
	conns, err := c.connect(ctx, p)
	defer func() {
		for _, nc := range conns {
			nc.SetDisconnectErrHandler(nil) // it is no outage
			nc.Close()
		}
	}()
	if err != nil {
		return err
	}
	js, err := jetstream.New(conns[0])
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	c.Conns, c.Topology, c.Log = conns, simulate.Topology(js), p.Log
	s, err := simulate.New(c.Options)
	if err != nil {
		return app.Usage(err)
	}
	stop := progress(p.Stderr, s)
	err = s.Run(ctx)
	stop()
	if err != nil {
		return p.NoAnswer(err)
	}
	return c.conclude(p.Stdout, s.Stats())
}

func (c *simulation) check() error {
	switch {
	case c.output != "table" && c.output != "json":
		return fmt.Errorf("--output %q: use table or json", c.output)
	case c.connections < 1 || c.connections > mostConnections:
		return fmt.Errorf("--connections %d: from 1 to %d", c.connections, mostConnections)
	case c.Hosts < 1:
		return fmt.Errorf("--hosts %d: at least 1", c.Hosts)
	case !(c.Rate > 0):
		return fmt.Errorf("--events-per-second %g: above 0", c.Rate)
	case c.BatchAge < time.Millisecond:
		return fmt.Errorf("--batch-age %s: at least 1ms", c.BatchAge)
	case c.Lose < 0 || c.Lose >= 1:
		return fmt.Errorf("--lose %g: from 0 to below 1", c.Lose)
	case c.Cluster == "":
		return errors.New("--cluster: empty: give their cluster a name")
	case c.Resume && c.LogPath == "":
		return errors.New("--resume: which log? name its file with --log")
	case c.Duration < 0:
		return fmt.Errorf("--duration %s: not below 0", c.Duration)
	}
	return nil
}

func (c *simulation) connect(ctx context.Context, p *app.Process) (conns []*nats.Conn, err error) {
	for range min(c.connections, c.Hosts) {
		nc, _, err := p.Connect(c.bus)
		if err != nil {
			return conns, err
		}
		conns = append(conns, nc)
		if err := reach(ctx, p, c.bus, nc); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// progress writes a line every second, on a terminal.
func progress(to io.Writer, s *simulate.Simulator) (stop func()) {
	file, ok := to.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func() {}
	}
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for before := s.Stats(); ; {
			select {
			case <-tick.C:
				now := s.Stats()
				fmt.Fprintf(to, "\r\x1b[K%s", progressLine(&before, &now))
				before = now
			case <-ended:
				fmt.Fprint(to, "\r\x1b[K")
				return
			}
		}
	})
	return func() {
		close(ended)
		group.Wait()
	}
}

func progressLine(before, now *simulate.Stats) string {
	seconds := max(now.Seconds-before.Seconds, 1e-3)
	line := fmt.Sprintf("%d hosts  %.0f events/s  %.1f MB/s  %d unacked  %d retries", now.Hosts,
		float64(now.AckedEvents-before.AckedEvents)/seconds, float64(now.AckedBytes-before.AckedBytes)/seconds/1e6,
		now.UnackedBatches, now.Retries)
	if !now.KeptUp {
		line += fmt.Sprintf("  does not keep up: %.1f s behind", now.Behind)
	}
	return line
}

func (c *simulation) conclude(to io.Writer, s simulate.Stats) error {
	out := &checked{Writer: to}
	if c.output == "json" {
		_ = json.NewEncoder(out).Encode(s) // out remembers
	} else {
		fmt.Fprintf(out, "%d hosts, %.1f s: %d events in %d batches (%s) are stored, %.0f events/s; %d retries\n",
			s.Hosts, s.Seconds, s.AckedEvents, s.AckedBatches, app.Bytes(s.AckedBytes), s.Rate, s.Retries)
		if s.WithheldBatches > 0 {
			fmt.Fprintf(out, "withheld: %d events in %d batches\n", s.WithheldEvents, s.WithheldBatches)
		}
		if !s.KeptUp {
			fmt.Fprintf(out, "not kept up: %.0f events/s were asked for, and the end is %.1f s behind\n", s.AskedRate, s.Behind)
		}
	}
	if s.UnackedBatches > 0 {
		return app.Incomplete(fmt.Errorf("%d events in %d batches were made and not acked: they may be stored or not", s.UnackedEvents, s.UnackedBatches))
	}
	return out.err
}
