package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/config"
)

// mostRefusals bounds what is remembered as said, and so the log of one connection.
const mostRefusals = 64

// refusals logs what the bus refuses, each thing once until the connection is a new one.
type refusals struct {
	c   config.NATS
	log *slog.Logger

	mu     sync.Mutex
	said   map[string]bool
	last   error // of the attempts to connect; nil when we are in, or were never refused
	denied error // the last right that this connection lacked; nil when it lacked none
}

func newRefusals(c config.NATS, log *slog.Logger) *refusals {
	return &refusals{c: c, log: log, said: map[string]bool{}}
}

// connecting takes the error of an attempt to connect, and says whether it is a refusal. A server that is
// not there is none.
func (r *refusals) connecting(err error) bool {
	remedy := explain(r.c, err)
	if remedy == "" {
		return false
	}
	refused := fmt.Errorf("%s (%w)", remedy, err)
	r.mu.Lock()
	r.last = refused
	r.mu.Unlock()
	if r.first(remedy) {
		r.log.Error("the bus does not let us in: trying until it does", "err", refused)
	}
	return true
}

// working takes an error of a connection that stands.
func (r *refusals) working(err error) {
	if r.connecting(err) {
		return
	}
	verb, subject := violation(err)
	if subject == "" {
		if r.first(err.Error()) {
			r.log.Warn("bus complains", "err", err)
		}
		return
	}
	remedy := "give this user the right on the server, or take the credentials that have it"
	if verb == "subscribe" && strings.HasPrefix(subject, strings.TrimSuffix(r.c.InboxPrefix, ".")) {
		remedy = "set nats.inbox_prefix to the prefix that this user's permissions name"
	}
	r.mu.Lock()
	r.denied = fmt.Errorf("the bus refuses: this user has no permission to %s to %s: %s", verb, subject, remedy)
	r.mu.Unlock()
	if r.first(verb + general(subject)) {
		r.log.Error("the bus refuses: this user has no permission to "+verb, "subject", subject, "remedy", remedy)
	}
}

// forget makes a refusal worth another line.
func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.said)
	r.last, r.denied = nil, nil
}

func (r *refusals) refused() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *refusals) lacks() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied
}

func (r *refusals) first(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[what] || len(r.said) >= mostRefusals {
		return false
	}
	r.said[what] = true
	return true
}

var violationPattern = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to "([^"]+)"`)

// violation is what a server's refusal is about: publish or subscribe, and the subject.
func violation(err error) (verb, subject string) {
	found := violationPattern.FindStringSubmatch(err.Error())
	switch {
	case found == nil:
		return "", ""
	case found[1] == "Publish":
		return "publish", found[2]
	}
	return "subscribe", found[2]
}

// general cuts off what is another one at each attempt: names of JetStream consumers, and inboxes.
func general(subject string) string {
	tokens := strings.Split(subject, ".")
	switch tokens[0] {
	case "$JS":
		return strings.Join(tokens[:min(len(tokens), 5)], ".")
	case "_INBOX":
		return tokens[0]
	}
	return subject
}

// explain is what a failure to connect means for who configured it, "" when it is no refusal. It
// names the key and the remedy.
func explain(c config.NATS, err error) string {
	if err == nil {
		return ""
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch text := err.Error(); {
	case errors.As(err, &authority) && c.TLS.CAFile == "":
		return "the server's certificate is signed by nobody that this system trusts: " +
			"set nats.tls.ca_file to the certificate of its authority"
	case errors.As(err, &authority):
		return "the server's certificate is not signed by the authority in nats.tls.ca_file: correct the file or nats.url"
	case errors.As(err, &name):
		return "the server's certificate is for another name: write in nats.url a name that it is for"
	case errors.As(err, &invalid):
		return "the server's certificate is not valid: renew it on the server, or correct this machine's clock"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS: turn it on there, or take nats.tls and tls:// out of the configuration"
	case strings.Contains(text, "remote error: tls: ") || errors.Is(err, nats.ErrTLS):
		if c.TLS.CertFile == "" {
			return "the server wants a client certificate: set nats.tls.cert_file and nats.tls.key_file"
		}
		return "the server does not take the client certificate in nats.tls.cert_file: it must be in date " +
			"and signed by the authority that the server trusts"
	case errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAccountAuthExpired):
		return "the credentials in " + c.Credential() + " have expired: renew them"
	case errors.Is(err, nats.ErrAuthRevoked):
		return "the credentials in " + c.Credential() + " were revoked: get new ones"
	case errors.Is(err, nats.ErrAuthorization) && c.Credential() == "":
		return "the server wants to know who this is: set nats.creds_file, nats.nkey_file " +
			"or a user and password in nats.url"
	case errors.Is(err, nats.ErrAuthorization) && c.Credential() == "nats.tls.cert_file":
		return "the server has no user with the credentials in nats.tls.cert_file: set nats.nkey_file or nats.creds_file too, " +
			"which it may want beside a certificate, or add the user there"
	case errors.Is(err, nats.ErrAuthorization):
		return "the server has no user with the credentials in " + c.Credential() + ": correct the key, or add the user there"
	}
	return ""
}
