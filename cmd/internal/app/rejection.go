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

// maxLogged bounds the lines that one connection logs about rejections.
const maxLogged = 64

// rejections logs what a NATS server rejects. It logs each rejection once until the next connection.
type rejections struct {
	c   config.NATS
	log *slog.Logger

	mu         sync.Mutex
	logged     map[string]bool
	connectErr error // rejection of the last attempt to connect, or nil
	permission error // last permission that this connection lacked, or nil
	dialErr    error // last failure to reach a server, or nil
}

func newRejections(c config.NATS, log *slog.Logger) *rejections {
	return &rejections{c: c, log: log, logged: map[string]bool{}}
}

// connectFailed takes the error of an attempt to connect, or nil. An unreachable server is not a rejection.
func (r *rejections) connectFailed(err error) {
	if err == nil {
		return
	}
	cause := explain(r.c, err)
	if cause == "" {
		r.mu.Lock()
		r.dialErr = err
		r.mu.Unlock()
		return
	}
	rejected := fmt.Errorf("connect to NATS at %s: %s (%w)", r.c.Servers(), cause, err)
	r.mu.Lock()
	r.connectErr = rejected
	r.mu.Unlock()
	if r.first(cause) {
		r.log.Error("NATS rejects the connection; retrying", "err", rejected)
	}
}

// failed takes an asynchronous error of an established connection.
func (r *rejections) failed(err error) {
	if explain(r.c, err) != "" {
		r.connectFailed(err)
		return
	}
	verb, subject := violation(err)
	if subject == "" {
		if r.first(err.Error()) {
			r.log.Warn("NATS reports an error", "err", err)
		}
		return
	}
	remedy := "grant this user the permission on the server, or use credentials that have it"
	if verb == "subscribe" && strings.HasPrefix(subject, strings.TrimSuffix(r.c.InboxPrefix, ".")) {
		remedy = "set nats.inbox_prefix to the prefix in the permissions of this user"
	}
	r.mu.Lock()
	r.permission = fmt.Errorf("%s to %s: this user has no permission; %s", verb, subject, remedy)
	r.mu.Unlock()
	if r.first(verb + stablePart(subject)) {
		r.log.Error("this user has no permission to "+verb, "subject", subject, "remedy", remedy)
	}
}

// reset forgets all rejections after a new connection, so that they are logged again.
func (r *rejections) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.logged)
	r.connectErr, r.permission, r.dialErr = nil, nil, nil
}

// connectError returns why there is no connection: the rejection, or nil and the last failure to reach a server.
func (r *rejections) connectError() (rejected, dial error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connectErr, r.dialErr
}

func (r *rejections) missingPermission() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.permission
}

// first reports whether a rejection has not been logged yet, and marks it as logged.
func (r *rejections) first(rejection string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logged[rejection] || len(r.logged) >= maxLogged {
		return false
	}
	r.logged[rejection] = true
	return true
}

var violationPattern = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to "([^"]+)"`)

// violation returns the verb (publish or subscribe) and the subject of a permissions violation.
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

// stablePart removes the tokens of a subject that differ at each attempt: names of JetStream consumers, and inboxes.
func stablePart(subject string) string {
	tokens := strings.Split(subject, ".")
	switch tokens[0] {
	case "$JS":
		return strings.Join(tokens[:min(len(tokens), 5)], ".")
	case "_INBOX":
		return tokens[0]
	}
	return subject
}

// explain returns the cause of a rejected connection and the remedy, with the key to change. It returns "" if the
// server did not reject the connection.
func explain(c config.NATS, err error) string {
	if err == nil {
		return ""
	}
	if cause := explainCertificate(c, err); cause != "" {
		return cause
	}
	credential := c.Credential()
	switch {
	case errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAccountAuthExpired):
		return "the credentials in " + credential + " have expired; renew them"
	case errors.Is(err, nats.ErrAuthRevoked):
		return "the credentials in " + credential + " were revoked; get new credentials"
	case errors.Is(err, nats.ErrAuthorization) && credential == "":
		return "the server requires credentials; set nats.creds_file, nats.nkey_file or a user and password in nats.url"
	case errors.Is(err, nats.ErrAuthorization) && credential == "nats.tls.cert_file":
		return "the server has no user with the credentials in nats.tls.cert_file; set nats.nkey_file or " +
			"nats.creds_file too, " +
			"which the server may require in addition to a certificate, or add the user on the server"
	case errors.Is(err, nats.ErrAuthorization):
		return "the server has no user with the credentials in " + credential +
			"; correct the key, or add the user on the server"
	}
	return ""
}

// explainCertificate is the part of explain about TLS.
func explainCertificate(c config.NATS, err error) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority) && c.TLS.CAFile == "":
		return "the certificate of the server is not signed by an authority that this system trusts; " +
			"set nats.tls.ca_file to the certificate of its authority"
	case errors.As(err, &authority):
		return "the certificate of the server is not signed by the authority in nats.tls.ca_file; correct the file " +
			"or nats.url"
	case errors.As(err, &name):
		return "the certificate of the server is for another name; use a name from the certificate in nats.url"
	case errors.As(err, &invalid):
		return "the certificate of the server is not valid; renew it on the server, or correct the clock of this " +
			"machine"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS; enable it there, or remove nats.tls and tls:// from the configuration"
	case strings.Contains(err.Error(), "remote error: tls: ") || errors.Is(err, nats.ErrTLS):
		if c.TLS.CertFile == "" {
			return "the server requires a client certificate; set nats.tls.cert_file and nats.tls.key_file"
		}
		return "the server rejects the client certificate in nats.tls.cert_file; it must be in date and signed by an " +
			"authority " +
			"that the server trusts"
	}
	return ""
}
