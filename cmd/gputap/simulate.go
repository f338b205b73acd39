package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/config"
)

// maxConnections bounds --connections. One connection carries about 100,000 batches/s.
const maxConnections = 256

// simulation holds the flags of gputap simulate.
type simulation struct {
	simulate.Options
	busCommand
	connections int
	out         *output
}

func simulateCommand(p *app.Process) *cobra.Command {
	c := simulation{busCommand: busCommand{p: p}}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Publish the events of many simulated hosts, without GPUs",
		Long: `Replay a recorded run as the events of many hosts, to test the load of a bus and its consumers or to try dashboards.
Each host has its own name, GPUs, processes, addresses and clock. The simulation ends after --duration or Ctrl-C,
when all batches are acked.

Exit status: 0 all batches are acked; 1 an error; 2 wrong flags; 4 batches are not acked; 5 NATS is unreachable.`,
		Example: `  gputap simulate --nats.url nats://bus:4222
  gputap simulate --nats.url nats://bus:4222 --hosts 1000 --events-per-second 200000 --duration 60s -o json
  gputap simulate --nats.url nats://bus:4222 --hosts 50 --lose 0.01 --log truth.log
  gputap simulate --nats.url nats://bus:4222 --hosts 80 --jobs 10 --slow-rank 30% --leak-rank 16MiB`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	c.readBus = config.BusFlags(flags)
	flags.IntVar(&c.connections, "connections", 4, "number of connections that the hosts share")
	flags.IntVar(&c.Hosts, "hosts", 100, "number of hosts, named sim-0000, sim-0001, …")
	flags.Float64Var(&c.Rate, "events-per-second", 20_000, "events per second of all hosts together")
	flags.DurationVar(&c.Duration, "duration", 0, "time after which to end (0: at Ctrl-C)")
	flags.StringVar(&c.Cluster, "cluster", "sim", "cluster name of the hosts")
	flags.Uint64Var(&c.Seed, "seed", 1,
		"number from which hosts and events are generated; the same seed gives the same events")
	flags.StringVar(&c.Profile, "profile", "",
		"recording to replay: batches, each after its length, plain or gzip (default: a PyTorch run)")
	flags.DurationVar(&c.BatchAge, "batch-age", time.Second, "largest time span of a batch; producers use 50ms")
	flags.DurationVar(&c.Drain, "drain", 10*time.Second, "time for the last batches to be acked")
	flags.Var((*share)(&c.Lose), "lose",
		"share of the batches that is not published and is reported as lost, such as 0.2 or 20%")
	flags.BoolVar(&c.Restart, "restart", false, "restart the producer of each host when the recording starts again")
	flags.IntVar(&c.Jobs, "jobs", 0, "number of jobs of 8 ranks, each rank on one of the first hosts")
	flags.Var((*percentage)(&c.SlowRank), "slow-rank",
		"how much longer rank 3 of the first job computes than the others, such as 30%")
	flags.Var((*config.Bytes)(&c.LeakRank), "leak-rank",
		"bytes that rank 5 of the first job allocates in a second and never frees, such as 16MiB")
	flags.StringVar(&c.LogPath, "log", "", "new file to which every batch is written before it is published")
	flags.BoolVar(&c.Resume, "resume", false,
		"continue a simulation that was killed: publish the batches of the --log file again that may not be stored")
	c.out = addOutput(cmd, "table")
	return cmd
}

func (c *simulation) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return app.Usage(err)
	}
	conns, _, err := c.connect(ctx, min(c.connections, c.Hosts))
	if err != nil {
		return err
	}
	defer closeAll(conns)
	c.Conns, c.Log = conns, c.p.Log
	s, err := simulate.New(c.Options)
	if err != nil {
		return app.Usage(err)
	}
	c.p.Drains()
	stop := c.p.Progress(progress(s))
	err = s.Run(ctx)
	stop()
	if err != nil {
		return c.p.ExplainTimeout(err)
	}
	return c.conclude(c.p.Stdout, s.Stats())
}

func (c *simulation) check() error {
	switch {
	case c.connections < 1 || c.connections > maxConnections:
		return fmt.Errorf("--connections %d: use 1 to %d", c.connections, maxConnections)
	case c.Hosts < 1:
		return fmt.Errorf("--hosts %d: use 1 or more", c.Hosts)
	case !(c.Rate > 0):
		return fmt.Errorf("--events-per-second %g: use more than 0", c.Rate)
	case c.BatchAge < time.Millisecond:
		return fmt.Errorf("--batch-age %s: use at least 1ms", c.BatchAge)
	case c.Cluster == "":
		return errors.New("--cluster: empty; set the name of the cluster")
	case c.Resume && c.LogPath == "":
		return errors.New("--resume: no log given; set --log to its file")
	case c.Jobs < 0:
		return fmt.Errorf("--jobs %d: use 0 or more", c.Jobs)
	case c.SlowRank > 0 && c.Jobs == 0:
		return errors.New("--slow-rank: there are no jobs; set --jobs")
	case c.LeakRank > 0 && c.Jobs == 0:
		return errors.New("--leak-rank: there are no jobs; set --jobs")
	case c.Duration < 0:
		return fmt.Errorf("--duration %s: use 0 or more", c.Duration)
	case c.Drain < 0:
		return fmt.Errorf("--drain %s: use 0 or more", c.Drain)
	}
	if c.Profile != "" {
		if _, err := os.Stat(c.Profile); err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
	}
	return nil
}

// percentage is a flag such as 30%, stored as 0.3.
type percentage float64

func (p *percentage) String() string { return strconv.FormatFloat(100*float64(*p), 'g', 4, 64) + "%" }

func (p *percentage) Type() string { return "percent" }

func (p *percentage) Set(text string) error {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v >= 0 && v <= 1000) {
		return fmt.Errorf("%q is no percentage; use 0%% to 1000%%", text)
	}
	*p = percentage(v / 100)
	return nil
}

// share is a flag such as 0.2 or 20%, stored as 0.2.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s), 'g', 4, 64) }

func (s *share) Type() string { return "share" }

func (s *share) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v < 1) {
		return fmt.Errorf("%q: expected a share such as 0.2, or 20%%; use 0 or more, and less than 1", text)
	}
	*s = share(v)
	return nil
}

// progress returns the line of progress of a simulation.
func progress(s *simulate.Simulator) func() string {
	before := s.Stats()
	return func() string {
		now := s.Stats()
		line := progressLine(&before, &now)
		before = now
		return line
	}
}

func progressLine(before, now *simulate.Stats) string {
	seconds := max(now.Seconds-before.Seconds, 1e-3)
	line := fmt.Sprintf("%d hosts  %.0f events/s  %.1f MB/s  %d unacked  %d retries", now.Hosts,
		float64(now.AckedEvents-before.AckedEvents)/seconds, float64(now.AckedBytes-before.AckedBytes)/seconds/1e6,
		now.UnackedBatches, now.Retries)
	if !now.KeptUp {
		line += fmt.Sprintf("  too slow: %.1f s behind", now.Behind)
	}
	return line
}

func (c *simulation) conclude(to io.Writer, s simulate.Stats) error {
	err := c.out.write(to, s, func(w io.Writer) {
		writeLine(w, "%d hosts, %.1f s: %d events in %d batches (%s) acked, %.0f events/s; %d retries",
			s.Hosts, s.Seconds, s.AckedEvents, s.AckedBatches, app.Bytes(s.AckedBytes), s.Rate, s.Retries)
		if s.WithheldBatches > 0 {
			writeLine(w, "not published on purpose: %d events in %d batches", s.WithheldEvents, s.WithheldBatches)
		}
		if !s.KeptUp {
			writeLine(w, "too slow: %.0f events/s were requested, and the last event is %.1f s late", s.AskedRate,
				s.Behind)
		}
	})
	if s.UnackedBatches > 0 {
		return app.Incomplete(fmt.Errorf("publish the events: %d events in %d batches are not acked and may be missing",
			s.UnackedEvents, s.UnackedBatches))
	}
	return err
}
