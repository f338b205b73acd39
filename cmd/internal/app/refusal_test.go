package app

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/config"
)

// TestRemedies: who has shown a certificate alone may lack an nkey beside it.
func TestRemedies(t *testing.T) {
	for want, c := range map[string]config.NATS{
		"set nats.nkey_file or nats.creds_file too":                               {TLS: config.TLS{CertFile: "c", KeyFile: "k"}},
		"no user with the credentials in nats.nkey_file: correct the key, or add": {NKeyFile: "n", TLS: config.TLS{CertFile: "c", KeyFile: "k"}},
		"set nats.creds_file, nats.nkey_file or a user":                           {},
	} {
		if got := explain(c, nats.ErrAuthorization); !strings.Contains(got, want) {
			t.Errorf("%q, want %q in it", got, want)
		}
	}
}
