package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// RunCommand is the configuration of gputap run.
type RunCommand struct {
	Embedded Embedded `koanf:"embedded"`
	Producer Producer `koanf:"producer"`
	Metrics  Metrics  `koanf:"metrics"`
	Leak     Leak     `koanf:"leak"`
	Anomaly  Anomaly  `koanf:"anomaly"`
}

// Embedded is the section of the NATS server inside gputap run. By default it does not listen.
type Embedded struct {
	Listen  string `koanf:"listen" flag:"nats-listen"`
	TLSCert string `koanf:"listen_tls_cert" flag:"nats-listen-tls-cert"`
	TLSKey  string `koanf:"listen_tls_key" flag:"nats-listen-tls-key"`

	StoreMaxBytes Bytes `koanf:"store_max_bytes" flag:"store-max-bytes"`
}

const (
	// DefaultStoreMaxBytes is the default of embedded.store_max_bytes.
	DefaultStoreMaxBytes = Bytes(2 << 30)
	minStore             = Bytes(64 << 20)
)

// DefaultRunCommand returns the configuration of gputap run without any file, variable or flag. It also watches waits:
// the rates of asynchronous copies and the gaps between launches need them.
func DefaultRunCommand() RunCommand {
	p := DefaultProducer()
	p.Features, p.Heartbeat = append(p.Features, "sync"), runHeartbeat
	leak := DefaultLeak()
	leak.Window, leak.KeepEnded = 10*time.Second, 0
	return RunCommand{
		Embedded: Embedded{StoreMaxBytes: DefaultStoreMaxBytes}, Producer: p, Metrics: Metrics{Addr: producerMetrics},
		Leak: leak, Anomaly: DefaultAnomaly(),
	}
}

// runHeartbeat is shorter than the interval of a fleet: windows under gputap run last seconds and close at heartbeats.
const runHeartbeat = 2 * time.Second

func (c RunCommand) Validate() error {
	return cmp.Or(c.Embedded.Validate(), c.Producer.Validate(), c.Leak.Validate(), c.Anomaly.Validate())
}

// Validate rejects an address that other machines can reach without TLS, and a store that is too small. A size of 0 is
// the default, for callers that read no configuration.
func (e Embedded) Validate() error {
	if e.StoreMaxBytes != 0 && e.StoreMaxBytes < minStore {
		return fmt.Errorf("embedded.store_max_bytes: %s is too small; use at least %s", e.StoreMaxBytes, minStore)
	}
	if (e.TLSCert == "") != (e.TLSKey == "") {
		return errors.New("embedded.listen_tls_cert and embedded.listen_tls_key: set both or neither")
	}
	if e.Listen == "" {
		if e.TLSCert != "" {
			return errors.New("embedded.listen_tls_cert: the server does not listen; set embedded.listen " +
				"(--nats-listen) too")
		}
		return nil
	}
	address, err := e.Address()
	if err != nil {
		return err
	}
	if !address.Addr().Unmap().IsLoopback() && e.TLSCert == "" {
		return fmt.Errorf("embedded.listen: other machines can reach %s; set embedded.listen_tls_cert and "+
			"embedded.listen_tls_key (--nats-listen-tls-cert, --nats-listen-tls-key), or listen on 127.0.0.1", e.Listen)
	}
	return nil
}

// Address parses Listen. Without a host it is every address of this machine. It does not look up names other than
// localhost, because their addresses may change.
func (e Embedded) Address() (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(e.Listen)
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	address, parsed := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil || parsed != nil {
		return netip.AddrPort{}, fmt.Errorf(
			"embedded.listen: %q is not an address; use an address and a port of this machine, such as 127.0.0.1:4222",
			e.Listen)
	}
	return address, nil
}
