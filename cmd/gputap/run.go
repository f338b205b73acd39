package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/library"
)

// commandScan is how often a run around a command looks for libraries that its children bring: a
// command may be short.
const commandScan = 100 * time.Millisecond

const defaultMetricsAddr = "127.0.0.1:9400"

func runCommand(p *app.Process) *cobra.Command {
	f := runFlags{producer: config.DefaultProducer()}
	cmd := &cobra.Command{
		Use:   "run [flags] [-- CMD ARG…]",
		Short: "Watch this host: producer, bus and consumers in one process",
		Long: `Watch every CUDA process of this host, with everything in one process: probes, an embedded
NATS JetStream, and the consumers. Needs root or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH.

With CMD the run ends when CMD has ended and its last events are folded; CMD's standard output goes
to standard error, and its exit status becomes gputap's. Otherwise the run ends after --for, or
with SIGINT or SIGTERM. Exit status 4 says that events were lost.`,
		Example: `  gputap run
  gputap run --features memory --for 30s -o json
  gputap run -- python train.py
  gputap run --nats-listen 127.0.0.1:4222
  gputap run --filter.comm python3 --filter.uid alice
  gputap run --library /opt/cuda-compat/libcuda.so.1 --metrics-addr 127.0.0.1:9500`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return app.Usage(fmt.Errorf("unexpected argument %q: put -- before the command to watch", args[0]))
			}
			if err := f.load(cmd.Flags()); err != nil {
				return err
			}
			return f.run(cmd.Context(), p, args, cmd.Flags().Changed("metrics-addr"))
		},
	}
	f.register(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("features", cobra.FixedCompletions([]string{"memory", "launch", "copy", "sync"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *runFlags) validate() error {
	if f.output != "table" && f.output != "json" {
		return fmt.Errorf("--output %q: use table or json", f.output)
	}
	if f.interval <= 0 {
		return fmt.Errorf("--display-interval %s: use a positive time", f.interval)
	}
	if f.forTime < 0 {
		return fmt.Errorf("--for %s: use a positive time", f.forTime)
	}
	if f.rows < 0 {
		return fmt.Errorf("--rows %d: use 0 or more", f.rows)
	}
	return nil
}

func (f *runFlags) run(ctx context.Context, p *app.Process, command []string, metricsAsked bool) error {
	if err := f.validate(); err != nil {
		return app.Usage(err)
	}
	if len(command) > 0 {
		f.producer.Libraries = append(f.producer.Libraries, library.ForCommand(command[0])...)
		f.producer.ScanInterval = commandScan
	}
	pipe, err := newPipeline(ctx, config.RunCommand{Embedded: f.bus, Producer: f.producer}, f.store, p.Log)
	if err != nil {
		return privilege(err)
	}
	defer pipe.close()
	p.Metrics.MustRegister(pipe.collectors()...)
	_, stop, err := p.Serve(ctx, f.metrics)
	switch {
	case err == nil:
		defer stop()
	case metricsAsked:
		return err
	default:
		p.Log.Warn("no /metrics: the default address is taken", "addr", f.metrics, "err", err)
	}
	pipe.start()
	return f.watch(ctx, p, pipe, command)
}

// watch reports at each interval until the command, the time or the context ends; then it drains
// and reports for the last time.
func (f *runFlags) watch(ctx context.Context, p *app.Process, pipe *pipeline, command []string) error {
	child, err := startChild(ctx, command, p.Stderr)
	if err != nil {
		return err
	}
	var timeout <-chan time.Time
	if f.forTime > 0 {
		timeout = time.After(f.forTime)
	}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
			if err := f.report(p.Stdout, pipe, false); err != nil {
				return err
			}
		case <-pipe.producerEnded:
			ended = true // its error comes with drain
		case <-child.ended:
			ended = true
		case <-timeout:
			ended = true
		case <-ctx.Done():
			ended = true
		}
	}
	child.stop()
	if err := pipe.drain(); err != nil {
		return err
	}
	if err := f.report(p.Stdout, pipe, true); err != nil {
		return err
	}
	if err := child.err(); err != nil {
		return err
	}
	if lost := pipe.lost(); len(lost) > 0 {
		return app.Incomplete(fmt.Errorf("events were lost: %v", lost))
	}
	return nil
}

func (f *runFlags) report(w io.Writer, pipe *pipeline, final bool) error {
	s := pipe.snapshot()
	s.Final = final
	if f.output == "json" {
		line := json.NewEncoder(w)
		line.SetEscapeHTML(false) // kernel names have angle brackets
		return line.Encode(s)
	}
	return writeReport(w, pipe, s, f.rows)
}

// child is the command under watch; without one it never ends.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	exit  error
}

// childGrace is how long a command may take to end after SIGTERM.
const childGrace = 10 * time.Second

func startChild(ctx context.Context, command []string, output io.Writer) (*child, error) {
	c := &child{ended: make(chan struct{})}
	if len(command) == 0 {
		return c, nil
	}
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, output, os.Stderr
	if err := c.cmd.Start(); err != nil {
		return nil, app.Usage(fmt.Errorf("start %s: %w", command[0], err))
	}
	go func() {
		c.exit = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// stop ends a command that is still running: first asked, then killed.
func (c *child) stop() {
	if c.cmd == nil {
		return
	}
	select {
	case <-c.ended:
		return
	default:
	}
	_ = c.cmd.Process.Signal(os.Interrupt)
	select {
	case <-c.ended:
	case <-time.After(childGrace):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// err makes the command's exit status gputap's, as a shell would write it.
func (c *child) err() error {
	if c.cmd == nil || c.exit == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(c.exit, &exit) {
		return app.Exit(exitStatus(exit), fmt.Errorf("%s: %w", c.cmd.Path, c.exit))
	}
	return fmt.Errorf("%s: %w", c.cmd.Path, c.exit)
}
