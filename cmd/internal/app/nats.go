package app

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

const (
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 2 * time.Second
)

var errAway = errors.New("the bus is away")

// Connect connects to NATS, and goes on trying when it is not there: a host agent starts before its
// bus does, and outlives it. Nothing is buffered in the connection: what is not acked is kept where
// it is counted.
func (p *Process) Connect(c config.NATS) (*nats.Conn, jetstream.JetStream, error) {
	name := c.Name
	if name == "" {
		name = p.Name
	}
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.IgnoreAuthErrorAbort(), // credentials are rotated: refused today is not refused for ever
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { p.Log.Warn("bus is away", "err", err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { p.Log.Info("bus is back", "server", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(p.complaints()),
	}
	if c.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.CredsFile != "" {
		options = append(options, nats.UserCredentials(c.CredsFile))
	}
	if c.NKeyFile != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, nil, Usage(fmt.Errorf("nats.nkey_file: %w", err))
		}
		options = append(options, nkey)
	}
	if c.TLS.CAFile != "" {
		options = append(options, nats.RootCAs(c.TLS.CAFile))
	}
	if c.TLS.CertFile != "" {
		options = append(options, nats.ClientCert(c.TLS.CertFile, c.TLS.KeyFile))
	}
	nc, err := nats.Connect(c.URL, options...)
	if err != nil {
		// A server that is not there is no error here: what is left are texts and files.
		return nil, nil, Usage(fmt.Errorf("connect to NATS: %w (see nats.url, nats.creds_file and nats.tls)", err))
	}
	if !nc.IsConnected() {
		p.Log.Warn("no bus yet: trying until there is")
	}
	p.ReadyWhen(func() error {
		if !nc.IsConnected() {
			return errAway
		}
		return nil
	})
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}

// complaints logs an error of the connection when it is another one than the last.
func (p *Process) complaints() nats.ErrHandler {
	var mu sync.Mutex
	var last string
	return func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err.Error() != last {
			last = err.Error()
			p.Log.Warn("bus complains", "err", err)
		}
	}
}
