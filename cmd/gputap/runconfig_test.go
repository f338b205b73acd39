package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// readRun reads the configuration of gputap run.
func readRun(t *testing.T, args ...string) (config.RunCommand, error) {
	t.Helper()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	read := config.Flags(flags, config.DefaultRunCommand())
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return read()
}

// TestACommandIsWatchedForTensors unless a source sets the features.
func TestACommandIsWatchedForTensors(t *testing.T) {
	read := func(args ...string) string {
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		read := config.Flags(flags, config.DefaultRunCommand())
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		watchTensors(flags)
		cfg, err := read()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(cfg.Producer.Features, ",")
	}
	if got, want := read(), strings.Join(config.DefaultRunCommand().Producer.Features, ",")+",torch"; got != want {
		t.Errorf("features %s, want %s", got, want)
	}
	if got := read("--features", "memory,launch,copy"); got != "memory,launch,copy" {
		t.Errorf("features %s, want those of the flag", got)
	}
	t.Setenv("GPUTAP_PRODUCER__FEATURES", "memory,launch,copy")
	if got := read(); got != "memory,launch,copy" {
		t.Errorf("features %s, want those of the variable", got)
	}
}

func TestRunReadsFileVariablesAndFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gputap.yaml")
	text := "embedded:\n  listen: 127.0.0.1:1\nproducer:\n  cluster: file\n  features: [memory]\n  host: file\n" +
		"metrics:\n  addr: 127.0.0.1:7\nnats:\n  url: nats://other:1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPUTAP_PRODUCER__CLUSTER", "variable")
	t.Setenv("GPUTAP_EMBEDDED__LISTEN", "127.0.0.1:2")
	cfg, err := readRun(t, "--config", path, "--nats-listen", "127.0.0.1:3", "--library", `"/a,b"`, "--library", "/c d",
		"--filter.comm", "x,y", "--unsafe-return-probes", "--producer.batch_events", "7")
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.Producer
	if cfg.Embedded.Listen != "127.0.0.1:3" || p.Cluster != "variable" || p.Host != "file" ||
		cfg.Metrics.Addr != "127.0.0.1:7" {
		t.Errorf("listen %s, cluster %s, host %s, metrics %s; want those of the flag, the variable, the file and the "+
			"file",
			cfg.Embedded.Listen, p.Cluster, p.Host, cfg.Metrics.Addr)
	}
	if !slices.Equal(p.Features, []string{"memory"}) || !slices.Equal(p.Libraries, []string{"/a,b", "/c d"}) ||
		!slices.Equal(p.Filter.Comm, []string{"x", "y"}) || !p.UnsafeReturns || p.BatchEvents != 7 {
		t.Errorf("got %+v", p)
	}
	if cfg, err = readRun(t, "--metrics-addr", ""); err != nil || cfg.Embedded.Listen != "127.0.0.1:2" ||
		cfg.Metrics.Addr != "" {
		t.Errorf("listen %q from the variable, metrics %q from the flag, %v", cfg.Embedded.Listen,
			cfg.Metrics.Addr, err)
	}
}

// TestRunFlagsAreKeys holds the help of gputap run to its word: all flags but the listed ones are keys.
func TestRunFlagsAreKeys(t *testing.T) {
	t.Parallel()
	own := []string{"config", "display-interval", "for", "output", "print-config", "record", "rows", "store"}
	keys := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(keys, config.DefaultRunCommand())
	var others []string
	runCommand(&app.Process{}).Flags().VisitAll(func(f *pflag.Flag) {
		if keys.Lookup(f.Name) == nil {
			others = append(others, f.Name)
		}
	})
	slices.Sort(others)
	if want := slices.DeleteFunc(own, func(name string) bool { return keys.Lookup(name) != nil }); !slices.Equal(
		others, want) {
		t.Errorf("flags that are not keys: %v, want %v", others, want)
	}
}

func TestRunRejectsUnsafeListeners(t *testing.T) {
	for want, args := range map[string][]string{
		"other machines can reach 0.0.0.0:4222": {"--nats-listen", "0.0.0.0:4222"},
		"other machines can reach :4222":        {"--nats-listen", ":4222"},
		"set both or neither":                   {"--nats-listen", ":4222", "--nats-listen-tls-cert", "c"},
		"does not listen":                       {"--nats-listen-tls-cert", "c", "--nats-listen-tls-key", "k"},
		`"bus:4222" is not an address`:          {"--nats-listen", "bus:4222"},
	} {
		if _, err := readRun(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %s", args, err, want)
		}
		if _, err := typed(t, append([]string{"run"}, args...)...); app.ExitCode(err) != 2 {
			t.Errorf("run %q ends with status %d, want 2", args, app.ExitCode(err))
		}
	}
	if _, err := readRun(t, "--nats-listen", "0.0.0.0:4222", "--nats-listen-tls-cert", "c", "--nats-listen-tls-key",
		"k"); err != nil {
		t.Errorf("with TLS: %v", err)
	}
}

// TestCommandStatus ends commands by themselves and by an interrupt.
func TestCommandStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		command   string
		interrupt bool
		status    int
	}{
		{"success", "true", false, 0},
		{"its status", "exit 41", false, 41},
		{"its signal", "kill -9 $$", false, 137},
		{"interrupted", "echo; exec sleep 60", true, 130},
		{"interrupted, and ends well", "trap 'kill $!; exit 0' INT; sleep 60 >/dev/null & echo; wait", true, 0},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		output := make(letters, 1)
		ended, err := startCommand(ctx, []string{"sh", "-c", tt.command}, output)
		if err != nil {
			t.Fatal(err)
		}
		if tt.interrupt {
			<-output
			interrupt()
		}
		if err := <-ended; app.ExitCode(err) != tt.status {
			t.Errorf("%s: ends with %d, %v", tt.name, app.ExitCode(err), err)
		}
	}
	if _, err := startCommand(t.Context(), []string{"/no/such/program"}, io.Discard); app.ExitCode(err) != 2 {
		t.Errorf("a program that does not exist: %v", err)
	}
}
