package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/term"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema/metric"
)

// version is set by the linker.
var version string

// Version returns the version that the linker set, else that of the module, else dev.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "dev"
}

// revision returns the commit of the build, or "" if the build does not record it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

// Process is one running command.
type Process struct {
	Name    string
	Args    []string // without the name of the program
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Stdout  io.Writer
	Stderr  io.Writer

	// Delays between attempts to connect to NATS; 0: the default. Tests shorten them.
	reconnectWait, reconnectJitter time.Duration

	drains atomic.Bool

	progress sync.Mutex
	shown    bool // the line of progress is

	mu     sync.Mutex
	checks []func() error // conditions of /readyz
	links  []*link        // one for each connection to NATS
}

// Main runs a command and ends the program with its exit status.
func Main(name string, run func(context.Context, *Process) error) {
	p := &Process{Name: name, Args: os.Args[1:], Metrics: registry(name), Stdout: os.Stdout, Stderr: os.Stderr}
	p.Logging(config.Log{Level: "info", Format: "auto"})
	if len(p.Args) == 1 && p.Args[0] == "--version" {
		fmt.Fprintf(p.Stdout, "%s %s %s\n", name, Version(), runtime.Version())
		os.Exit(0)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	var ended atomic.Int32 // number of the first signal; 0: none arrived
	go func() {
		first := <-signals
		ended.Store(numberOf(first))
		if p.drains.Load() {
			p.Log.Info("draining; a second signal exits at once", "signal", first.String())
		}
		stop()
		os.Exit(128 + int(numberOf(<-signals)))
	}()
	err := run(ctx, p)
	if errors.Is(err, config.ErrHelp) {
		err = nil
	}
	if err = endedBy(syscall.Signal(ended.Load()), err); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, config.Redact(err.Error()))
	}
	os.Exit(ExitCode(err))
}

func numberOf(s os.Signal) int32 {
	number, _ := s.(syscall.Signal) // every signal of Unix is one
	return int32(number)
}

// endedBy explains the error of a command that a signal has ended before it was done, and gives it the exit status of
// the signal. Other errors, and those with a status, stay.
func endedBy(signal syscall.Signal, err error) error {
	if signal == 0 || ExitCode(err) != 1 || !errors.Is(err, context.Canceled) {
		return err
	}
	text := strings.ReplaceAll(err.Error(), context.Canceled.Error(), "ended by a signal ("+signal.String()+")")
	return Exit(128+int(signal), errors.New(text))
}

// Drains makes the first signal log that the program drains. A program that keeps nothing ends without a line.
func (p *Process) Drains() { p.drains.Store(true) }

func registry(name string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts(metric.Opts("gputap_build_info", prometheus.Labels{
		"component": name, "version": Version(), "revision": revision(), "goversion": runtime.Version(),
	})))
	info.Set(1)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Logging sets level and format of the log on standard error.
func (p *Process) Logging(c config.Log) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // already validated
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: redact}
	var handler slog.Handler = slog.NewJSONHandler(logWriter{p}, options)
	if c.Format == "text" || c.Format == "auto" && term.IsTerminal(int(os.Stderr.Fd())) {
		handler = slog.NewTextHandler(logWriter{p}, options)
	}
	p.Log = slog.New(handler)
}

// redact hides secrets in log attributes and messages.
func redact(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(config.Redact(v))
	case error:
		a.Value = slog.StringValue(config.Redact(v.Error()))
	}
	return a
}
