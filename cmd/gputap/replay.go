package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/cmd/internal/replay"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema/recording"
)

// replayFlags are the flags of gputap replay.
type replayFlags struct {
	busCommand
	selectFlags
	since, until string
	to           string
	consumers    []string
	window       time.Duration
	rows         int
	pace         replay.Pace
	out          *output
	flags        *pflag.FlagSet

	messages uint64 // that were replayed
}

func replayCommand(p *app.Process) *cobra.Command {
	c := replayFlags{busCommand: busCommand{p: p}}
	cmd := &cobra.Command{
		Use:   "replay FILE | --since TIME",
		Short: "Replay a recording into consumers, and report",
		Long: `Replay a recording into the consumers of gputap run, in this process, and write their report at the end. With
--since instead of FILE, gputap first records that range of a bus into a temporary file.

--speed 0 replays as fast as possible; 1 in the time that the recording took; 10 in a tenth of it. With a speed above
0, gputap get and gputap top on this host show the replay while it runs.

--to replays to another bus instead, to test consumers there: each message is published unchanged to the shard of its
host. A bus that holds batches of the same hosts, boots and runs is refused, because its consumers would drop the
messages as duplicates.

--job selects the hosts on which a job runs at some time, with all their messages.

A time is RFC 3339 (2026-01-02T15:04:05Z), a time of day (03:00, the last one in the zone of this machine), or a
duration before now (10m).

Exit status: 0 success; 1 an error; 2 wrong flags; 4 the recording is damaged or empty, events were lost, no message is
selected, or a signal ended the replay; 5 NATS is unreachable.`,
		Example: `  gputap replay hour.gtr
  gputap replay hour.gtr --consumers leak,anomaly -o json
  gputap replay hour.gtr --speed 1 --max-idle 5s
  gputap replay hour.gtr --to nats://test-bus:4222 --speed 10
  gputap replay --nats.url nats://bus:4222 --since 30m --until 10m --host gpu-7`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	c.flags = flags
	flags.SortFlags = false
	flags.Float64Var(&c.pace.Speed, "speed", 0, "1: as recorded; 2: twice as fast; 0: as fast as possible")
	flags.DurationVar(&c.pace.MaxIdle, "max-idle", 0, "longest pause between two messages (default: no limit)")
	flags.StringSliceVar(&c.consumers, "consumers", fold.Names(), "consumers that take the messages")
	c.out = addOutput(cmd, "table")
	flags.IntVar(&c.rows, "rows", 20, "number of allocations in the report, largest first")
	flags.DurationVar(&c.window, "leak-window", config.DefaultRunCommand().Leak.Window,
		"length of the windows from which leak judges, at least 1s; gputap-leak uses 1m")
	flags.StringVar(&c.to, "to", "", "URL of the NATS server to publish to, instead of the consumers of this process")
	c.addFlags(cmd, "replay")
	flags.StringVar(&c.since, "since", "", "without FILE: replay what NATS stored at this time or later")
	flags.StringVar(&c.until, "until", "", "without FILE: replay what NATS stored before this time (default: now)")
	c.readBus = config.BusFlags(flags)
	completeWith(cmd, "consumers", fold.Names()...)
	completeFiles(cmd, "gtr")
	return cmd
}

func (c *replayFlags) run(ctx context.Context, args []string) error {
	now := time.Now()
	if err := c.check(args, now); err != nil {
		return app.Usage(err)
	}
	selection, err := c.selection()
	if err != nil {
		return app.Usage(err)
	}
	if len(args) == 1 {
		return c.replay(ctx, args[0], selection, nil)
	}
	s, err := c.recordRange(ctx, selection, now)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(s.Path) }()
	return c.replay(ctx, s.Path, selection, s.Lost())
}

// check checks the flags.
func (c *replayFlags) check(args []string, now time.Time) error {
	since, sinceErr := app.ParseTime(c.since, now)
	until, untilErr := app.ParseTime(c.until, now)
	unknown := slices.IndexFunc(c.consumers, func(name string) bool { return fold.ByName(name) == nil })
	switch {
	case len(args) == 0 && c.since == "":
		return errors.New("nothing to replay: name a recording, or set --since to replay from a bus")
	case len(args) == 1 && c.since+c.until != "":
		return errors.New("--since and --until: not with a recording; they select a range of a bus")
	case sinceErr != nil:
		return fmt.Errorf("--since: %w", sinceErr)
	case untilErr != nil:
		return fmt.Errorf("--until: %w", untilErr)
	case !until.IsZero() && !since.Before(until):
		return fmt.Errorf("--since %s: it is not before --until", c.since)
	case until.After(now):
		return fmt.Errorf("--until %s: it is not in the past", c.until)
	case c.pace.Speed != 0 && !(c.pace.Speed >= 1e-3 && c.pace.Speed <= 1e9): // else durations overflow
		return fmt.Errorf("--speed %g: use 0, or 0.001 to 1e9", c.pace.Speed)
	case c.pace.MaxIdle < 0:
		return fmt.Errorf("--max-idle %s: use 0 or more", c.pace.MaxIdle)
	case c.window < time.Second:
		return fmt.Errorf("--leak-window %s: use at least 1s", c.window)
	case c.rows < 0:
		return fmt.Errorf("--rows %d: use 0 or more", c.rows)
	case len(c.consumers) == 0:
		return errors.New("--consumers: empty; use " + strings.Join(fold.Names(), ", "))
	case unknown >= 0:
		return fmt.Errorf("--consumers: unknown %q; use %s", c.consumers[unknown], strings.Join(fold.Names(), ", "))
	}
	return nil
}

// recordRange records the range of the bus into a temporary file, which the caller removes.
func (c *replayFlags) recordRange(ctx context.Context, s recording.Selection, now time.Time) (record.Stats, error) {
	o := record.Options{Selection: s, Log: c.p.Log}
	o.Since, _ = app.ParseTime(c.since, now) // check has parsed both
	if o.Until, _ = app.ParseTime(c.until, now); o.Until.IsZero() {
		o.Until = now
	}
	conns, js, err := c.connect(ctx, 1)
	if err != nil {
		return record.Stats{}, err
	}
	defer closeAll(conns)
	o.JetStream = js
	stats, err := record.Range(ctx, o, "", func(r *record.Recorder) func() {
		return c.p.Progress(record.ProgressLine(r, o.Until))
	})
	return stats, c.p.ExplainTimeout(err)
}

// replay replays a file. missing says that the file lacks messages.
func (c *replayFlags) replay(ctx context.Context, path string, s recording.Selection, missing error) error {
	f, err := replay.Open(path, s, c.p.Log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if c.to != "" {
		err = c.replayToBus(ctx, f)
	} else {
		err = c.replayHere(ctx, f)
	}
	switch {
	case err != nil:
		return err
	case missing != nil:
		return app.Incomplete(missing)
	case f.Damages() > 0:
		return app.Incomplete(fmt.Errorf("replay %s: %s damaged; the log names them", path,
			app.Plural(uint64(f.Damages()), "part is", "parts are")))
	case ctx.Err() != nil:
		return app.Incomplete(fmt.Errorf("replay %s: ended by a signal before the end of the recording", path))
	case f.IsEmpty():
		return app.Incomplete(fmt.Errorf("replay %s: the recording is empty", path))
	case c.messages == 0 && c.selected() != "":
		return app.Incomplete(fmt.Errorf("replay %s: no message is selected by %s", path, c.selected()))
	}
	return nil
}

// replayHere replays into folds of this process and writes their report.
func (c *replayFlags) replayHere(ctx context.Context, f *replay.File) error {
	cfg := config.DefaultRunCommand()
	cfg.Leak.Window = c.window
	l, err := replay.NewLocal(ctx, f, replay.LocalOptions{
		Pace: c.pace, Consumers: c.consumers, Leak: cfg.Leak, Anomaly: cfg.Anomaly, Listen: c.pace.Speed > 0,
	}, c.p.Log)
	if err != nil {
		return err
	}
	defer l.Close()
	stop := c.p.Progress(replay.ProgressLine(f, c.pace, l.Stats))
	err = l.Run(ctx)
	stop()
	if err != nil {
		return err
	}
	c.log(l.Stats())
	s := l.Snapshot()
	s.Final = true
	err = c.out.write(c.p.Stdout, s, func(w io.Writer) { _ = s.Write(w, l.Largest(c.rows)) }) // w keeps the error
	if err != nil {
		return err
	}
	if lost := l.Lost(); len(lost) > 0 {
		return app.Incomplete(fmt.Errorf("events were lost: %s", report.LostText(lost)))
	}
	return nil
}

// replayedJSON is what replay --to writes with -o json. docs/answers.md explains the keys.
type replayedJSON struct {
	Messages uint64     `json:"messages"` // of the recording
	Events   uint64     `json:"events"`
	Acked    uint64     `json:"acked_messages"`
	Retries  uint64     `json:"retries"`
	Since    *time.Time `json:"since"` // when NATS stored the first message; null without messages
	Until    *time.Time `json:"until"`
	Seconds  float64    `json:"seconds"`
	Behind   float64    `json:"behind_seconds"`
}

// replayToBus publishes to another bus.
func (c *replayFlags) replayToBus(ctx context.Context, f *replay.File) error {
	if err := c.flags.Set("nats.url", c.to); err != nil { // the other keys are for both buses
		return app.Usage(fmt.Errorf("--to: %w", err))
	}
	conns, js, err := c.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	pub, err := replay.NewPublisher(ctx, f, c.pace, js, c.p.Log)
	if err != nil {
		return c.p.ExplainTimeout(err)
	}
	stop := c.p.Progress(replay.ProgressLine(f, c.pace, pub.Stats))
	err = pub.Run(ctx)
	stop()
	if err != nil {
		return c.p.ExplainTimeout(err)
	}
	s, published := pub.Stats(), pub.Published()
	c.log(s)
	r := replayedJSON{Messages: s.Messages, Events: published.Events, Acked: published.Acked,
		Retries: published.Retries, Seconds: s.Elapsed.Seconds(), Behind: s.Behind.Seconds()}
	if s.Messages > 0 {
		r.Since, r.Until = &s.First, &s.Last
	}
	return c.out.write(c.p.Stdout, &r, func(w io.Writer) {
		writeLine(w, "%s acked; %d retries", app.Plural(published.Acked, "message", "messages"), published.Retries)
		if s.Messages > 0 {
			writeLine(w, "%s to %s, in %.1f s", timestamp(s.First), timestamp(s.Last), s.Elapsed.Seconds())
		}
	})
}

// log logs how well the replay kept time.
func (c *replayFlags) log(s replay.Stats) {
	c.messages = s.Messages
	attributes := []any{"messages", s.Messages, "seconds", s.Elapsed.Seconds()}
	if c.pace.Speed > 0 {
		attributes = append(attributes, "recorded_seconds", s.Last.Sub(s.First).Seconds(), "behind_seconds",
			s.Behind.Seconds())
	}
	c.p.Log.Info("replayed", attributes...)
}
