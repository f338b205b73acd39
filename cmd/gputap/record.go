package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// recordFlags are the flags of gputap record.
type recordFlags struct {
	busCommand
	output, since, until string
	cluster, host        string
	kinds                []string
	maxFileBytes         config.Bytes
}

func recordCommand(p *app.Process) *cobra.Command {
	c := recordFlags{busCommand: busCommand{p: p}}
	cmd := &cobra.Command{
		Use:   "record -o FILE",
		Short: "Record events of a fleet into a file",
		Long: `Record the messages of the streams into a file. The file begins with the live allocations known at its start.
Without --until, record follows the streams until a signal arrives. An existing recording of the same streams is
continued behind its last messages; --since has no effect then. After kill -9, run the same command again.

A time is RFC 3339 (2026-01-02T15:04:05Z) or a duration before now (10m).

Exit status: 0 success; 1 an error; 2 wrong flags; 4 messages were removed before they were read; 5 NATS is
unreachable.`,
		Example: `  gputap record --nats.url nats://bus:4222 --since 1h --until 0s -o hour.gtr
  gputap record --nats.url nats://bus:4222 --cluster lab --host gpu-7 --kind memory,host -o gpu-7.gtr
  gputap record --nats.url nats://bus:4222 --max-file-bytes 1GiB -o fleet.gtr   # fleet-000001.gtr, …
  gputap record inspect hour.gtr`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	c.readBus = config.BusFlags(flags)
	flags.StringVarP(&c.output, "output", "o", "", "file to write; - is standard output")
	flags.StringVar(&c.since, "since", "", "begin with what NATS stored at this time (default: with new messages)")
	flags.StringVar(&c.until, "until", "", "end before what NATS stored at this time (default: at Ctrl-C)")
	flags.StringVar(&c.cluster, "cluster", "", "record only this cluster")
	flags.StringVar(&c.host, "host", "", "record only this host")
	flags.StringSliceVar(&c.kinds, "kind", nil, "record only these kinds: memory, launch, copy, sync, tensor, host")
	flags.Var(&c.maxFileBytes, "max-file-bytes", "size at which to begin another numbered file (default: one file)")
	completeWith(cmd, "kind", "memory", "launch", "copy", "sync", "tensor", "host")
	cmd.AddCommand(inspectCommand(p))
	return cmd
}

func (c *recordFlags) run(ctx context.Context) error {
	o, err := c.options(time.Now())
	if err != nil {
		return app.Usage(err)
	}
	conns, js, err := c.connect(ctx, 1)
	if err != nil {
		return err
	}
	defer conns[0].Close()
	c.p.Drains()
	o.JetStream, o.Log = js, c.p.Log
	r := record.New(o)
	stop := app.Progress(c.p.Stderr, recordProgress(r, o.Until))
	err = r.Run(ctx)
	stop()
	if err != nil {
		return c.p.ExplainTimeout(err)
	}
	s := r.Stats()
	to := &errorWriter{Writer: c.p.Stdout}
	if o.Path == "" {
		to.Writer = c.p.Stderr
	}
	writeRecorded(to, &s)
	if err := s.Lost(); err != nil {
		return app.Incomplete(err)
	}
	return to.err
}

// options checks the flags.
func (c *recordFlags) options(now time.Time) (o record.Options, err error) {
	o = record.Options{Path: c.output, MaxFileBytes: int64(c.maxFileBytes)}
	o.Selection = recording.Selection{Cluster: c.cluster, Host: c.host}
	for _, word := range c.kinds {
		kind := schema.ParseKind(word)
		if kind == schema.KindNone {
			return o, fmt.Errorf("--kind: unknown %q; use memory, launch, copy, sync or host", word)
		}
		o.Selection.Kinds = append(o.Selection.Kinds, kind)
	}
	if o.Since, err = app.ParseTime(c.since, now); err != nil {
		return o, fmt.Errorf("--since: %w", err)
	}
	if o.Until, err = app.ParseTime(c.until, now); err != nil {
		return o, fmt.Errorf("--until: %w", err)
	}
	switch {
	case c.output == "":
		return o, errors.New("--output: empty; set the file to write with -o FILE")
	case c.output == "-" && app.IsTerminal(c.p.Stdout):
		return o, errors.New("--output -: standard output is a terminal; redirect it, or use -o FILE")
	case c.output == "-" && c.maxFileBytes > 0:
		return o, errors.New("--max-file-bytes: standard output is one file; use -o FILE")
	case c.output == "-":
		o.Path, o.To = "", c.p.Stdout
	}
	if !o.Until.IsZero() && !o.Since.Before(o.Until) {
		return o, fmt.Errorf("--since %s: it is not before --until", c.since)
	}
	return o, nil
}

// recordProgress returns the line of progress. With until it estimates the end from the time that is covered.
func recordProgress(r *record.Recorder, until time.Time) func() string {
	began, before := time.Now(), record.Stats{}
	return func() string {
		s := r.Stats()
		line := fmt.Sprintf("%s  %d messages  %d events (%d/s)  %s covered", app.Bytes(uint64(s.Bytes)), s.Messages,
			s.Events, s.Events-before.Events, s.Last.Sub(s.First).Round(time.Second))
		before = s
		if left := remaining(&s, until, time.Since(began)); left > 0 {
			line += fmt.Sprintf("  ETA %s", left.Round(time.Second))
		}
		return line
	}
}

// remaining estimates how long a recorder needs until a time, or returns 0.
func remaining(s *record.Stats, until time.Time, elapsed time.Duration) time.Duration {
	covered := s.Last.Sub(s.First)
	if until.IsZero() || covered <= 0 {
		return 0
	}
	reading := time.Duration(float64(elapsed) * float64(until.Sub(s.Last)) / float64(covered))
	return max(reading, time.Until(until))
}

func writeRecorded(to io.Writer, s *record.Stats) {
	path := s.Path
	if path == "" {
		path = "standard output"
	}
	writeLine(to, "%s: %s, %s with %s of %s", path, app.Bytes(uint64(s.Bytes)),
		app.Plural(s.Messages, "message", "messages"), app.Plural(s.Events, "event", "events"),
		app.Plural(uint64(s.Shards), "shard", "shards"))
	if s.Files > 1 {
		writeLine(to, "%d files, of which this is the last", s.Files)
	}
	if s.Messages > 0 {
		writeLine(to, "%s to %s", timestamp(s.First), timestamp(s.Last))
	}
	if s.Incomplete > 0 && !s.Continued {
		writeLine(to, "the live allocations at the beginning are incomplete in %s: see gputap record inspect",
			app.Plural(uint64(s.Incomplete), "shard", "shards"))
	}
	if s.Behind {
		writeLine(to, "not all stored messages are recorded; run the same command again to continue")
	}
}

func inspectCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE…",
		Short: "Show what recordings hold, and check every byte",
		Long: `Show the time, hosts, kinds and shards of recordings, and the state at their beginning. inspect checks every byte.

Exit status: 0 success; 1 an error; 2 wrong flags; 4 a recording is damaged.`,
		Example: "  gputap record inspect hour.gtr\n  gputap record inspect fleet-*.gtr -o json",
		Args:    cobra.MinimumNArgs(1),
	}
	out := addOutput(cmd, "table")
	cmd.RunE = func(_ *cobra.Command, files []string) error {
		damaged := 0
		for i, file := range files {
			found, err := record.Inspect(file)
			if err != nil {
				return err
			}
			damaged += len(found.Damages)
			if i > 0 && !out.json {
				writeLine(p.Stdout, "")
			}
			if err := out.write(p.Stdout, found, found.Write); err != nil {
				return err
			}
		}
		if damaged > 0 {
			return app.Incomplete(fmt.Errorf("check the recordings: %s damaged; the other blocks are whole",
				app.Plural(uint64(damaged), "part is", "parts are")))
		}
		return nil
	}
	return cmd
}
