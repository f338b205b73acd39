package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/config"
)

// recordFlags are the flags of gputap record.
type recordFlags struct {
	busCommand
	selectFlags
	output, since, until string
	maxFileBytes         config.Bytes
	redact               bool
}

func recordCommand(p *app.Process) *cobra.Command {
	c := recordFlags{busCommand: busCommand{p: p}}
	cmd := &cobra.Command{
		Use:   "record -o FILE",
		Short: "Record events of a fleet into a file",
		Long: `Record the messages of the streams into a file. The file begins with the live allocations known at its start.
Without --until, record follows the streams until a signal arrives. An existing recording of the same streams is
continued behind its last messages; --since has no effect then. After kill -9, run the same command again. A recording
with --redact cannot be continued.

--job selects hosts, not processes: all messages of a host, from the first one on that names a process of the job. So
no batch is missing between two others. Hosts that have a live process of the job at the start are selected at once.

A time is RFC 3339 (2026-01-02T15:04:05Z), a time of day (03:00, the last one in the zone of this machine), or a
duration before now (10m).

Exit status: 0 success; 1 an error; 2 wrong flags; 4 messages were removed before they were read; 5 NATS is
unreachable.`,
		Example: `  gputap record --nats.url nats://bus:4222 --since 1h --until 0s -o hour.gtr
  gputap record --nats.url nats://bus:4222 --cluster lab --host gpu-7 --kind memory,host -o gpu-7.gtr
  gputap record --nats.url nats://bus:4222 --job 'llama-*' -o llama.gtr
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
	c.addFlags(cmd, "record")
	flags.Var(&c.maxFileBytes, "max-file-bytes", "size at which to begin another numbered file (default: one file)")
	flags.BoolVar(&c.redact, "redact", false, "replace private names by pseudonyms: see gputap record redact")
	cmd.AddCommand(inspectCommand(p), redactCommand(p))
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
	stop := c.p.Progress(record.ProgressLine(r, o.Until))
	err = r.Run(ctx)
	stop()
	if err != nil {
		return c.p.ExplainTimeout(err)
	}
	s := r.Stats()
	warnEmpty(c.p.Log, &o, &s)
	to := &app.Output{Writer: c.p.Stdout}
	if o.Path == "" {
		to.Writer = c.p.Stderr
	}
	writeRecorded(to, &s)
	if err := s.Lost(); err != nil {
		return app.Incomplete(err)
	}
	return to.Err
}

// warnEmpty warns of a recording without messages.
func warnEmpty(log *slog.Logger, o *record.Options, s *record.Stats) {
	if s.Messages == 0 && !s.Continued {
		log.Warn("the recording is empty: no message matched its selection; see gputap get hosts for the names",
			"selection", record.SelectionText(&o.Selection))
	}
}

// options checks the flags.
func (c *recordFlags) options(now time.Time) (o record.Options, err error) {
	o = record.Options{Path: c.output, MaxFileBytes: int64(c.maxFileBytes), Redact: c.redact}
	if o.Selection, err = c.selection(); err != nil {
		return o, err
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
	case c.maxFileBytes != 0 && c.maxFileBytes < record.LeastFileBytes:
		return o, fmt.Errorf("--max-file-bytes %s: use at least %s", c.maxFileBytes,
			config.Bytes(record.LeastFileBytes))
	case c.output == "-":
		o.Path, o.To = "", c.p.Stdout
	}
	switch {
	case o.Since.After(now):
		return o, fmt.Errorf("--since %s: it is in the future", c.since)
	case !o.Until.IsZero() && !o.Since.Before(o.Until):
		return o, fmt.Errorf("--since %s: it is not before --until", c.since)
	case c.until != "" && c.since == "" && !o.Until.After(now) && c.isNew():
		return o, fmt.Errorf("--until %s: a new recording begins with new messages, and this is in the past; set "+
			"--since, too", c.until)
	}
	return o, nil
}

// isNew reports whether there is no recording to continue. Numbered files may be there under other names.
func (c *recordFlags) isNew() bool {
	info, err := os.Stat(c.output)
	return c.maxFileBytes == 0 && (err != nil || info.Size() == 0)
}

func writeRecorded(to io.Writer, s *record.Stats) {
	path := s.Path
	if path == "" {
		path = "standard output"
	}
	if s.Files > 1 {
		path = fmt.Sprintf("%d files, %s to %s", s.Files, s.FirstPath, s.Path)
	}
	added := ""
	if s.Continued {
		added = "added to an earlier recording: "
	}
	writeLine(to, "%s: %s%s, %s with %s of %s", path, added, app.Bytes(uint64(s.Bytes)),
		app.Plural(s.Messages, "message", "messages"), app.Plural(s.Events, "event", "events"),
		app.Plural(uint64(s.Shards), "shard", "shards"))
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
