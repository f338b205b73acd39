package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

const (
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 2 * time.Second
	// The clients of a server that died go to the others within this time, and not all at once.
	moveJitter = 500 * time.Millisecond
)

var errAway = errors.New("the bus is away")

// Connect connects to NATS, and goes on trying when it is not there: a host agent starts before its
// bus does, and outlives it. Nothing is buffered in the connection: what is not acked is kept where
// it is counted. What the bus refuses is logged once for each connection.
//
// Replies come below _INBOX.<program> unless c names another prefix: permissions can then keep one
// user from reading what another is sent.
func (p *Process) Connect(c config.NATS) (*nats.Conn, jetstream.JetStream, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, Usage(err)
	}
	options, err := identity(c)
	if err != nil {
		return nil, nil, Usage(err)
	}
	if c.Name == "" {
		c.Name = p.Name
	}
	if c.InboxPrefix == "" {
		c.InboxPrefix = nats.InboxPrefix + schema.Token(p.Name)
	}
	var made atomic.Pointer[nats.Conn]
	var at atomic.Pointer[string] // the server that we are connected to; nil once another was tried
	said := newRefusals(c, p.Log)
	p.mu.Lock()
	p.refusals = append(p.refusals, said)
	p.mu.Unlock()
	options = append(options,
		nats.Name(c.Name), nats.CustomInboxPrefix(c.InboxPrefix),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(), // credentials are rotated: refused today is not refused for ever
		nats.CustomReconnectDelay(func(int) time.Duration {
			if nc := made.Load(); nc != nil {
				said.connecting(nc.LastError()) // of a handshake after the first: no handler hears of it
			}
			return reconnectWait + rand.N(reconnectJitter)
		}),
		// The delay above comes when all servers of the bus were tried: what goes to another is delayed here.
		nats.ReconnectToServer(func(servers []nats.Server, _ nats.ServerInfo) (*nats.Server, time.Duration) {
			return another(servers, at.Swap(nil))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: closed by this program
				p.Log.Warn("bus is away", "err", err)
			}
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			said.forget()
			at.Store(new(nc.ConnectedUrl()))
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			said.forget()
			at.Store(new(nc.ConnectedUrl()))
			p.Log.Info("bus is back", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { said.connecting(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { said.working(err) }),
	)
	nc, err := nats.Connect(c.URL, options...)
	if err != nil {
		// A server that is not there is no error here: what is left are texts and files.
		return nil, nil, Usage(fmt.Errorf("connect to NATS: %w (see nats.url, nats.creds_file and nats.tls)", err))
	}
	made.Store(nc)
	if !nc.IsConnected() {
		p.Log.Warn("no bus yet: trying until there is")
	}
	p.ReadyWhen(func() error {
		if nc.IsConnected() {
			return nil
		}
		if refused := said.refused(); refused != nil {
			return refused
		}
		return errAway
	})
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}

// another is the server to try behind the one that was lost, and when. nil leaves both to nats.go: when there is no
// other, or one was tried already.
func another(servers []nats.Server, lost *string) (*nats.Server, time.Duration) {
	if lost == nil || len(servers) < 2 {
		return nil, 0
	}
	i := slices.IndexFunc(servers, func(s nats.Server) bool { return s.URL.String() == *lost })
	return &servers[(i+1)%len(servers)], rand.N(moveJitter)
}

// NoBus says why a connection is not there, for a command that has waited long enough.
func (p *Process) NoBus(c config.NATS) error {
	for _, said := range p.refused() {
		if refused := said.refused(); refused != nil {
			return Unreachable(refused)
		}
	}
	return Unreachable(fmt.Errorf("no NATS server answers at %s: start one with JetStream, or correct nats.url", c.Servers()))
}

// NoAnswer is why a request had no answer: the right that this user lacks, if the bus has refused one. Any other error stays.
func (p *Process) NoAnswer(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	if denied := p.denied(); denied != nil {
		return denied
	}
	return err
}

// denied is a right that was missing on a connection that stands; nil: none was.
func (p *Process) denied() error {
	for _, said := range p.refused() {
		if denied := said.lacks(); denied != nil {
			return denied
		}
	}
	return nil
}

func (p *Process) refused() []*refusals {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.refusals)
}

// identity are the options that say who we are and whom we trust. Their files are read here, so that
// one that is missing is named by its key.
func identity(c config.NATS) (options []nats.Option, err error) {
	for _, file := range []struct{ key, path string }{
		{"nats.creds_file", c.CredsFile}, {"nats.nkey_file", c.NKeyFile}, {"nats.tls.ca_file", c.TLS.CAFile},
		{"nats.tls.cert_file", c.TLS.CertFile}, {"nats.tls.key_file", c.TLS.KeyFile},
	} {
		if file.path == "" {
			continue
		}
		if _, err := os.ReadFile(file.path); err != nil {
			return nil, fmt.Errorf("%s: %w", file.key, err)
		}
	}
	if c.CredsFile != "" {
		if _, err := userJWT(c.CredsFile); err != nil {
			return nil, err
		}
		options = append(options, nats.UserCredentials(c.CredsFile), func(o *nats.Options) error {
			o.UserJWT = func() (string, error) { return userJWT(c.CredsFile) } // at each connect: it is rotated
			return nil
		})
	}
	if c.NKeyFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nats.nkey_file: %w", err)
		}
		options = append(options, nkey)
	}
	if c.TLS.CAFile != "" {
		options = append(options, nats.RootCAs(c.TLS.CAFile))
	}
	if c.TLS.CertFile != "" {
		options = append(options, nats.ClientCert(c.TLS.CertFile, c.TLS.KeyFile))
	}
	return options, nil
}

// userJWT reads the JWT of a credentials file. Where it stands between no lines of dashes nats.go takes the whole file for it, and sends
// that to the server: the seed too.
func userJWT(path string) (string, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("nats.creds_file: %w", err)
	}
	token, err := nkeys.ParseDecoratedJWT(file)
	_, seedErr := nkeys.ParseDecoratedUserNKey(file)
	if err != nil || seedErr != nil || !strings.HasPrefix(token, "eyJ") || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("nats.creds_file: %s is no credentials file, a JWT and a seed between lines of dashes: "+
			"a file of a seed alone belongs into nats.nkey_file", path)
	}
	return token, nil
}
