package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/pipeline"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/library"
)

// childScanInterval replaces producer.scan_interval when run starts a command, which may end soon.
const childScanInterval = 100 * time.Millisecond

// childGrace is how long a command may take to end after SIGINT.
const childGrace = 10 * time.Second

// runFlags are the flags of gputap run that are not keys.
type runFlags struct {
	interval time.Duration
	forTime  time.Duration
	out      *output
	store    string
	record   string
	rows     int
}

func runCommand(p *app.Process) *cobra.Command {
	f := runFlags{}
	var read func() (config.RunCommand, error)
	cmd := &cobra.Command{
		Use:   "run [flags] [-- CMD ARG…]",
		Short: "Watch this host: probes, NATS and consumers in one process",
		Long: `Watch every CUDA process of this host. Probes, an embedded NATS JetStream server and the consumers run in
this one process. Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH.

With CMD, gputap runs CMD and exits after it, when all its events are folded. CMD's standard output goes to
standard error. gputap watches the other processes of the host, too: --filter.comm restricts it. Unless you set
--features, gputap then also watches PyTorch's allocator (feature torch). Without CMD, gputap runs until --for has
passed or a signal arrives.

Every flag is also a YAML key (--config) and a variable: --producer.cluster is GPUTAP_PRODUCER__CLUSTER. The
exceptions are --display-interval, --for, --output, --record, --rows and --store, which are flags only. The keys of
the alert rules are not listed below: gputap config print run shows them.

Without --store, the streams are in a temporary directory that gputap removes at its end. If a run was killed, the
next run removes its directory. --store-max-bytes limits the size of the store. A run continues the file of --record
only if the run before had the same --store.

Exit status: that of CMD if it is not 0, or 128 plus the number of its signal; otherwise 0 after a clean end; 1 an
error; 2 wrong flags or configuration; 4 events were lost; 6 privileges are missing.`,
		Example: `  sudo gputap run
  sudo gputap run --features memory --for 30s -o json
  sudo gputap run -- python3 train.py
  sudo gputap run --record run.gtr -- python3 train.py
  sudo gputap run --nats-listen 127.0.0.1:4222
  sudo gputap run --filter.comm python3 --filter.uid 1000
  sudo gputap run --library /opt/cuda-compat/libcuda.so.1 --metrics-addr 127.0.0.1:9500`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return app.Usage(fmt.Errorf("unexpected argument %q; write -- before the command to run", args[0]))
			}
			if len(args) == 0 && cmd.ArgsLenAtDash() == 0 {
				return app.Usage(errors.New("no command follows --; name one, or leave -- out to watch the whole host"))
			}
			if len(args) > 0 {
				watchTensors(cmd.Flags())
			}
			cfg, err := read()
			if err != nil {
				return app.Usage(err)
			}
			return f.run(cmd.Context(), p, cfg, args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&f.forTime, "for", 0, "time after which to exit (default: never)")
	flags.DurationVar(&f.interval, "display-interval", 5*time.Second, "time between two reports")
	f.out = addOutput(cmd, "table")
	flags.IntVar(&f.rows, "rows", 20, "number of allocations in a report, largest first")
	flags.StringVar(&f.record, "record", "", "file into which to record all events: see gputap record")
	flags.StringVar(&f.store, "store", "", "directory in which to keep the streams (default: a temporary one)")
	read = config.Flags(flags, config.DefaultRunCommand())
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = strings.Contains(f.Name, ".rules.") }) // the help names their keys
	completeWith(cmd, "features", "memory", "launch", "copy", "sync", config.TorchFeature)
	return cmd
}

// watchTensors adds PyTorch's allocator to the features that are watched if no file, variable or flag sets them.
func watchTensors(flags *pflag.FlagSet) {
	if features := flags.Lookup("features"); !features.Changed {
		_ = features.Value.(pflag.SliceValue).Append(config.TorchFeature) // a list of words takes any word
	}
}

func (f *runFlags) validate() error {
	switch {
	case f.interval <= 0:
		return app.Usage(fmt.Errorf("--display-interval %s: use more than 0", f.interval))
	case f.forTime < 0:
		return app.Usage(fmt.Errorf("--for %s: use 0 or more", f.forTime))
	case f.rows < 0:
		return app.Usage(fmt.Errorf("--rows %d: use 0 or more", f.rows))
	}
	return nil
}

func (f *runFlags) run(ctx context.Context, p *app.Process, cfg config.RunCommand, command []string) error {
	if err := f.validate(); err != nil {
		return err
	}
	if len(command) > 0 {
		cfg.Producer.Libraries = append(cfg.Producer.Libraries, library.ForCommand(command[0])...)
		cfg.Producer.ScanInterval = childScanInterval
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // 20 to 30 MiB less resident memory for a tenth more CPU, measured under load
	}
	p.Drains()
	pipe, err := pipeline.New(ctx, cfg, f.store, p.Log)
	if err != nil {
		return privilege(err)
	}
	defer pipe.Close()
	p.Metrics.MustRegister(pipe.Collectors()...)
	_, stop, err := p.Serve(ctx, cfg.Metrics.Addr)
	switch {
	case err == nil:
		defer stop()
	case cfg.Metrics != config.DefaultRunCommand().Metrics:
		return err
	default: // the user did not ask for /metrics
		p.Log.Warn("cannot serve /metrics", "addr", cfg.Metrics.Addr, "err", err)
	}
	if f.record != "" {
		err := pipe.Record(f.record)
		if errors.Is(err, record.ErrOtherStream) {
			err = fmt.Errorf("--record %s: %w; to continue a file, give both runs the same --store", f.record, err)
		}
		if err != nil {
			return err
		}
	}
	pipe.Start()
	pipe.Listen()
	return f.watch(ctx, p, pipe, command)
}

// watch writes a report at each interval until the command, the time or the context ends. Then it drains the pipeline
// and writes the last report.
func (f *runFlags) watch(ctx context.Context, p *app.Process, pipe *pipeline.Pipeline, command []string) error {
	commandContext, stopCommand := context.WithCancel(context.Background())
	defer stopCommand()
	ended, err := startCommand(commandContext, command, p.Stderr)
	if err != nil {
		return err
	}
	if f.forTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.forTime)
		defer cancel()
	}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	var exit error
	for watching := true; watching; {
		select {
		case <-tick.C:
			if err := f.report(p.Stdout, pipe, false); err != nil {
				return err
			}
		case exit = <-ended:
			ended, watching = nil, false
		case <-pipe.ProducerEnded():
			watching = false // Drain returns its error
		case <-ctx.Done():
			watching = false
		}
	}
	stopCommand()
	if ended != nil {
		exit = <-ended
	}
	if err := pipe.Drain(); err != nil {
		return err
	}
	recorded := pipe.EndRecording()
	if err := f.report(p.Stdout, pipe, true); err != nil {
		return err
	}
	if err := cmp.Or(exit, recorded); err != nil {
		return err
	}
	if lost := pipe.Lost(); len(lost) > 0 {
		return app.Incomplete(fmt.Errorf("events were lost: %s", report.LostText(lost)))
	}
	return nil
}

// startCommand starts a command and returns a channel that receives its result: an error with the exit status that a
// shell would report. The end of ctx interrupts the command. Without a command the channel is nil.
func startCommand(ctx context.Context, command []string, output io.Writer) (ended chan error, err error) {
	if len(command) == 0 {
		return nil, nil
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, output, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = childGrace
	if err := c.Start(); err != nil {
		return nil, app.Usage(fmt.Errorf("start %s: %w", command[0], err))
	}
	ended = make(chan error, 1)
	go func() { ended <- exitError(c.Path, c.Wait()) }()
	return ended, nil
}

func exitError(path string, err error) error {
	var exit *exec.ExitError
	if err == nil || errors.Is(err, context.Canceled) { // it was interrupted and ended with status 0
		return nil
	}
	err = fmt.Errorf("run %s: %w", path, err)
	if !errors.As(err, &exit) {
		return err
	}
	if wait, ok := exit.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		return app.Exit(128+int(wait.Signal()), err)
	}
	return app.Exit(exit.ExitCode(), err)
}

func (f *runFlags) report(to io.Writer, pipe *pipeline.Pipeline, final bool) error {
	s := pipe.Snapshot()
	s.Final = final
	return f.out.write(to, s, func(w io.Writer) { _ = s.Write(w, pipe.Largest(f.rows)) }) // w keeps the error
}
