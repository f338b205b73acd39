package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

func loaded(t *testing.T, args ...string) (*runFlags, error) {
	t.Helper()
	f := &runFlags{producer: config.DefaultProducer()}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f, f.load(flags)
}

// TestRunIsConfigured: file, then variables, then flags, as every other command.
func TestRunIsConfigured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gputap.yaml")
	text := "embedded:\n  listen: 127.0.0.1:1\nproducer:\n  cluster: file\n  features: [memory]\n  host: file\nnats:\n  url: nats://other:1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPUTAP_PRODUCER__CLUSTER", "variable")
	t.Setenv("GPUTAP_EMBEDDED__LISTEN", "127.0.0.1:2")
	f, err := loaded(t, "--config", path, "--nats-listen", "127.0.0.1:3", "--library", "/a,b", "--library", `/c "d"`,
		"--filter.comm", "x,y", "--unsafe-return-probes", "--for", "1s", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if f.bus.Listen != "127.0.0.1:3" || f.producer.Cluster != "variable" || f.producer.Host != "file" {
		t.Errorf("listen %s, cluster %s, host %s; want the flag's, the variable's, the file's", f.bus.Listen, f.producer.Cluster, f.producer.Host)
	}
	if !slices.Equal(f.producer.Features, []string{"memory"}) || !slices.Equal(f.producer.Libraries, []string{"/a,b", `/c "d"`}) ||
		!slices.Equal(f.producer.Filter.Comm, []string{"x", "y"}) || !f.producer.UnsafeReturns {
		t.Errorf("got %+v", f.producer)
	}
	if f, err = loaded(t); err != nil || f.bus.Listen != "127.0.0.1:2" {
		t.Errorf("from the variable alone: %s, %v", f.bus.Listen, err)
	}
}

func TestRunRefusesAddresses(t *testing.T) {
	for want, args := range map[string][]string{
		"other machines reach 0.0.0.0:4222": {"--nats-listen", "0.0.0.0:4222"}, "other machines reach :4222": {"--nats-listen", ":4222"},
		"set both or neither": {"--nats-listen", ":4222", "--nats-listen-tls-cert", "c"}, "nothing listens": {"--nats-listen-tls-cert", "c", "--nats-listen-tls-key", "k"},
		`"bus:4222": use the address`: {"--nats-listen", "bus:4222"},
	} {
		if _, err := loaded(t, args...); err == nil || !strings.Contains(err.Error(), want) || app.ExitCode(err) != 2 {
			t.Errorf("%q: %v with status %d, want it to say %s", args, err, app.ExitCode(err), want)
		}
	}
	if _, err := loaded(t, "--nats-listen", "0.0.0.0:4222", "--nats-listen-tls-cert", "c", "--nats-listen-tls-key", "k"); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	if _, err := loaded(t, "--print-config"); !errors.Is(err, config.ErrHelp) {
		t.Errorf("--print-config: %v", err)
	}
}
