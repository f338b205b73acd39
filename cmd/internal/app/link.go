package app

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/config"
)

// maxLogged bounds the lines that one connection logs about rejections.
const maxLogged = 64

// link follows one connection to NATS. It logs what servers reject: each rejection once until the next connection.
type link struct {
	c      config.NATS
	log    *slog.Logger
	nc     atomic.Pointer[nats.Conn] // nil until nats.Connect returns
	server atomic.Pointer[string]    // URL of the connected server; nil after another one was tried

	mu         sync.Mutex
	logged     map[string]bool
	connectErr error // rejection of the last attempt to connect, or nil
	permission error // last permission that this connection lacked, or nil
	dialErr    error // last failure to reach a server, or nil
}

// options make nats.go tell the link what happens, and set the delays between attempts to connect.
func (l *link) options(wait, jitter time.Duration) []nats.Option {
	return []nats.Option{
		nats.CustomReconnectDelay(func(int) time.Duration {
			if nc := l.nc.Load(); nc != nil {
				l.connectFailed(nc.LastError()) // no handler gets the error of a later handshake
			}
			return wait + rand.N(jitter)
		}),
		// The delay above is used after all servers were tried. This one delays the move to the next server.
		nats.ReconnectToServer(func(servers []nats.Server, _ nats.ServerInfo) (*nats.Server, time.Duration) {
			return nextServer(servers, l.server.Swap(nil))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil if this program closed the connection
				l.log.Warn("disconnected from NATS", "err", err)
			}
		}),
		nats.ConnectHandler(l.connected),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			l.connected(nc)
			l.log.Info("reconnected to NATS", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { l.connectFailed(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.failed(err) }),
	}
}

// nextServer returns the server to try after the lost one, and the delay. It returns nil, which leaves both to nats.go,
// if there is no other server or if one was tried already.
func nextServer(servers []nats.Server, lost *string) (*nats.Server, time.Duration) {
	if lost == nil || len(servers) < 2 {
		return nil, 0
	}
	i := slices.IndexFunc(servers, func(s nats.Server) bool { return s.URL.String() == *lost })
	return &servers[(i+1)%len(servers)], rand.N(moveJitter)
}

// connected forgets all rejections, so that they are logged again.
func (l *link) connected(nc *nats.Conn) {
	l.server.Store(new(nc.ConnectedUrl()))
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.logged)
	l.connectErr, l.permission, l.dialErr = nil, nil, nil
}

// ready is the condition of /readyz.
func (l *link) ready() error {
	if l.nc.Load().IsConnected() {
		return nil
	}
	rejected, _ := l.connectError()
	return cmp.Or(rejected, errUnreachable)
}

// connectFailed takes the error of an attempt to connect, or nil. An unreachable server is not a rejection.
func (l *link) connectFailed(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	cause := explain(l.c, err)
	if cause == "" {
		l.dialErr = err
		return
	}
	l.connectErr = fmt.Errorf("connect to NATS at %s: %s (%w)", l.c.Servers(), cause, err)
	if l.first(cause) {
		l.log.Error("NATS rejects the connection; retrying", "err", l.connectErr)
	}
}

// failed takes an asynchronous error of an established connection.
func (l *link) failed(err error) {
	if explain(l.c, err) != "" {
		l.connectFailed(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	verb, subject := violation(err)
	if subject == "" {
		if l.first(err.Error()) {
			l.log.Warn("NATS reports an error", "err", err)
		}
		return
	}
	if verb == "publish" && strings.HasPrefix(subject, "$JS.API.CONSUMER.DELETE.") {
		// JetStream removes the consumers that gputap leaves, when they are idle.
		l.log.Debug("this user has no permission to delete its JetStream consumer", "subject", subject)
		return
	}
	remedy := "grant this user the permission on the server, or use credentials that have it"
	if verb == "subscribe" && strings.HasPrefix(subject, strings.TrimSuffix(l.c.InboxPrefix, ".")) {
		remedy = "set nats.inbox_prefix to the prefix in the permissions of this user"
	}
	l.permission = fmt.Errorf("%s to %s: this user has no permission; %s", verb, subject, remedy)
	if l.first(verb + stablePart(subject)) {
		l.log.Error("this user has no permission to "+verb, "subject", subject, "remedy", remedy)
	}
}

// connectError returns why there is no connection: the rejection, or nil and the last failure to reach a server.
func (l *link) connectError() (rejected, dial error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connectErr, l.dialErr
}

func (l *link) missingPermission() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.permission
}

// first reports whether a rejection has not been logged yet, and marks it as logged. mu must be held.
func (l *link) first(rejection string) bool {
	if l.logged[rejection] || len(l.logged) >= maxLogged {
		return false
	}
	l.logged[rejection] = true
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
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	credential := c.Credential()
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
	case rejectsCertificate(err) && c.TLS.CertFile == "":
		return "the server requires a client certificate; set nats.tls.cert_file and nats.tls.key_file"
	case rejectsCertificate(err):
		return "the server rejects the client certificate in nats.tls.cert_file; it must be in date and signed by an " +
			"authority that the server trusts"
	case errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAccountAuthExpired):
		return "the credentials in " + credential + " have expired; renew them"
	case errors.Is(err, nats.ErrAuthRevoked):
		return "the credentials in " + credential + " were revoked; get new credentials"
	case errors.Is(err, nats.ErrAuthorization) && credential == "":
		return "the server requires credentials; set nats.creds_file, nats.nkey_file or a user and password in nats.url"
	case errors.Is(err, nats.ErrAuthorization) && credential == "nats.tls.cert_file":
		return "the server has no user with the credentials in nats.tls.cert_file; set nats.nkey_file or " +
			"nats.creds_file too, which the server may require in addition to a certificate, or add the user on the " +
			"server"
	case errors.Is(err, nats.ErrAuthorization):
		return "the server has no user with the credentials in " + credential +
			"; correct the key, or add the user on the server"
	}
	return ""
}

func rejectsCertificate(err error) bool {
	return strings.Contains(err.Error(), "remote error: tls: ") || errors.Is(err, nats.ErrTLS)
}
