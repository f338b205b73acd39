package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
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
	// moveJitter spreads the clients of a server that died over the time in which they connect to the others.
	moveJitter = 500 * time.Millisecond
)

var errUnreachable = errors.New("NATS is unreachable")

// Connect connects to NATS. While no server is reachable it retries without end, because a host agent may start before
// its bus and outlives it. The connection buffers nothing; the spool keeps batches that are not acked. Each rejection
// is logged once for each connection.
//
// Reply subjects begin with _INBOX.<program> unless c has another prefix, so that permissions can keep one user from
// reading the replies to another.
func (p *Process) Connect(c config.NATS, more ...nats.Option) (*nats.Conn, jetstream.JetStream, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, Usage(err)
	}
	options, err := identity(c)
	if err != nil {
		return nil, nil, Usage(err)
	}
	c.InboxPrefix = cmp.Or(c.InboxPrefix, nats.InboxPrefix+schema.Token(p.Name))
	l := &link{c: c, log: p.Log, logged: map[string]bool{}}
	p.mu.Lock()
	p.links = append(p.links, l)
	p.mu.Unlock()
	wait, jitter := cmp.Or(p.reconnectWait, reconnectWait), cmp.Or(p.reconnectJitter, reconnectJitter)
	options = append(options, nats.Name(cmp.Or(c.Name, p.Name)), nats.CustomInboxPrefix(c.InboxPrefix),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort()) // a server may accept rotated credentials later
	options = append(options, more...)
	nc, err := nats.Connect(c.URL, append(options, l.options(wait, jitter)...)...)
	if err != nil {
		// An unreachable server is not an error here. The remaining errors are about the configuration.
		return nil, nil, Usage(fmt.Errorf("connect to NATS at %s: %w; see nats.url, nats.creds_file and nats.tls",
			c.Servers(), err))
	}
	l.nc.Store(nc)
	if !nc.IsConnected() {
		p.Log.Warn("NATS is unreachable; retrying", "url", c.Servers())
	}
	p.ReadyWhen(l.ready)
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}

// Dial connects for a command: it waits until the connection is established. The caller closes it.
func (p *Process) Dial(ctx context.Context, c config.NATS, patience time.Duration, more ...nats.Option) (*nats.Conn,
	jetstream.JetStream, error) {
	began := time.Now()
	nc, js, err := p.Connect(c, more...)
	if err != nil {
		return nil, nil, err
	}
	if err := p.reach(ctx, c, nc, patience-time.Since(began)); err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

// reach waits until a new connection is established.
func (p *Process) reach(ctx context.Context, c config.NATS, nc *nats.Conn, patience time.Duration) error {
	connected := nc.StatusChanged(nats.CONNECTED)
	if nc.IsConnected() {
		return nil
	}
	select {
	case <-connected:
		return nil
	case <-time.After(patience):
		return p.ConnectError(c)
	case <-ctx.Done():
		return fmt.Errorf("connect to NATS: %w", ctx.Err())
	}
}

// ConnectError returns the reason why there is no connection.
func (p *Process) ConnectError(c config.NATS) error {
	cause := errUnreachable
	for _, l := range p.allLinks() {
		rejected, dial := l.connectError()
		if rejected != nil {
			return Unreachable(rejected)
		}
		if errors.Is(dial, nats.ErrNoServers) { // nats.go replaces the error of a refused connection
			dial = syscall.ECONNREFUSED
		}
		cause = cmp.Or(dial, cause)
	}
	return Unreachable(fmt.Errorf("connect to NATS at %s: %w; start a server with JetStream, or correct nats.url",
		c.Servers(), cause))
}

// ExplainTimeout replaces the timeout of a request by the permission that the user lacks, if the server has rejected
// one. It returns other errors unchanged.
func (p *Process) ExplainTimeout(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	if missing := p.missingPermission(); missing != nil {
		return missing
	}
	return err
}

// missingPermission returns an error about a permission that an established connection lacked, or nil.
func (p *Process) missingPermission() error {
	for _, l := range p.allLinks() {
		if err := l.missingPermission(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) allLinks() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.links)
}

// identity returns the options for credentials and trusted authorities. It reads their files, so that the error for a
// missing file has its key.
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
			// read at each connect, because it may be rotated
			o.UserJWT = func() (string, error) { return userJWT(c.CredsFile) }
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

// userJWT reads the JWT of a credentials file. nats.go would send a whole file without lines of dashes to the server,
// including the seed.
func userJWT(path string) (string, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("nats.creds_file: %w", err)
	}
	token, err := nkeys.ParseDecoratedJWT(file)
	_, seedErr := nkeys.ParseDecoratedUserNKey(file)
	if err != nil || seedErr != nil || !strings.HasPrefix(token, "eyJ") || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf(
			"nats.creds_file: %s is not a credentials file with a JWT and a seed between lines of dashes; "+
				"set nats.nkey_file to a file with only a seed", path)
	}
	return token, nil
}
