package app

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/config"
)

// TestRemediesForRejectedCredentials checks that the remedy for a client with only a certificate is to set an nkey too.
func TestRemediesForRejectedCredentials(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]config.NATS{
		"set nats.nkey_file or nats.creds_file too": {TLS: config.TLS{CertFile: "c",
			KeyFile: "k"}},
		"no user with the credentials in nats.nkey_file; correct the key, or add": {NKeyFile: "n",
			TLS: config.TLS{CertFile: "c", KeyFile: "k"}},
		"set nats.creds_file, nats.nkey_file or a user": {},
	} {
		if got := explain(c, nats.ErrAuthorization); !strings.Contains(got, want) {
			t.Errorf("%q, want %q in it", got, want)
		}
	}
}
