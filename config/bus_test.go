package config

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestBusFlags checks that flags override variables, that errors name mistaken variables, and that help shows no values
// of variables.
func TestBusFlags(t *testing.T) {
	t.Setenv("GPUTAP_NATS__URL", "nats://me:pa55w0rd@bus")
	t.Setenv("GPUTAP_NATS__TLS__CA_FILE", "/of/variable.pem")
	t.Setenv("GPUTAP_PRODUCER__CLUSTER", "another command's")
	read := func(args ...string) (NATS, string, error) {
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		read := BusFlags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		n, err := read()
		return n, flags.FlagUsages(), err
	}
	n, help, err := read("--nats.creds_file", "/of/flag.creds")
	if err != nil || n.URL != "nats://me:pa55w0rd@bus" || n.TLS.CAFile != "/of/variable.pem" ||
		n.CredsFile != "/of/flag.creds" {
		t.Errorf("%+v, %v", n, err)
	}
	if strings.Contains(help, "pa55w0rd") || !strings.Contains(help, "$GPUTAP_NATS__TLS__CA_FILE") {
		t.Error(help)
	}
	if n, _, err = read("--nats.url", "nats://other"); err != nil || n.URL != "nats://other" {
		t.Errorf("%+v, %v", n, err)
	}
	if _, _, err = read("--nats.url", ""); err == nil || !strings.Contains(err.Error(), "--nats.url: empty") {
		t.Errorf("without a URL: %v", err)
	}
	t.Setenv("GPUTAP_NATS__CRED_FILE", "x")
	if _, _, err = read(); err == nil || !strings.Contains(err.Error(), "did you mean nats.creds_file") {
		t.Errorf("an unknown variable: %v", err)
	}
}
