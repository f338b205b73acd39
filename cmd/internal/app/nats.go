package app

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
)

const (
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = 2 * time.Second
)

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
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { p.Log.Warn("bus is away", "err", err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { p.Log.Info("bus is back", "server", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.Log.Warn("bus complains", "err", err) }),
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
	if c.CAFile != "" {
		options = append(options, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		options = append(options, nats.ClientCert(c.CertFile, c.KeyFile))
	}
	nc, err := nats.Connect(c.URL, options...)
	if err != nil {
		return nil, nil, Unreachable(fmt.Errorf("connect to NATS: %w (see nats.url)", err))
	}
	if !nc.IsConnected() {
		p.Log.Warn("no bus yet: trying until there is")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("use JetStream: %w", err)
	}
	return nc, js, nil
}
