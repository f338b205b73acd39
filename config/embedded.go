package config

import (
	"fmt"
	"net"
	"net/netip"
)

// RunCommand is what gputap run reads from files and variables; its other flags are flags only.
type RunCommand struct {
	Embedded Embedded `koanf:"embedded"`
	Producer Producer `koanf:"producer"`
}

// Embedded is the bus inside gputap run. It listens only when it is told to.
type Embedded struct {
	Listen  string `koanf:"listen" flag:"nats-listen" doc:"address where the embedded bus lets other programs read, as 127.0.0.1:4222 (port 0: any; empty: nowhere)"`
	TLSCert string `koanf:"listen_tls_cert" flag:"nats-listen-tls-cert" doc:"certificate of the embedded bus; needed to listen beyond this machine"`
	TLSKey  string `koanf:"listen_tls_key" flag:"nats-listen-tls-key" doc:"key of that certificate"`
}

// DefaultRunCommand is what an empty file means.
func DefaultRunCommand() RunCommand { return RunCommand{Producer: DefaultProducer()} }

// Validate names the first key whose value makes no sense.
func (c RunCommand) Validate() error { return first(c.Embedded, c.Producer) }

// Validate refuses an address that other machines reach without TLS.
func (e Embedded) Validate() error {
	if (e.TLSCert == "") != (e.TLSKey == "") {
		return fmt.Errorf("embedded.listen_tls_cert and embedded.listen_tls_key: set both or neither")
	}
	if e.Listen == "" {
		if e.TLSCert != "" {
			return fmt.Errorf("embedded.listen_tls_cert: nothing listens: set embedded.listen (--nats-listen) to an address too")
		}
		return nil
	}
	address, err := e.Address()
	if err != nil {
		return err
	}
	if !address.Addr().Unmap().IsLoopback() && e.TLSCert == "" {
		return fmt.Errorf("embedded.listen: other machines reach %s: set embedded.listen_tls_cert and embedded.listen_tls_key "+
			"(--nats-listen-tls-cert, --nats-listen-tls-key), or listen on 127.0.0.1", e.Listen)
	}
	return nil
}

// Address parses Listen. No host is every address of this machine; a name other than localhost is not
// looked up, as it may be another address tomorrow.
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
		return netip.AddrPort{}, fmt.Errorf("embedded.listen: %q: use the address and port of this machine, as 127.0.0.1:4222", e.Listen)
	}
	return address, nil
}
