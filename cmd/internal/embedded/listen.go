package embedded

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/gputap/gputap/config"
)

// Users of the embedded server: the program itself, every program that can read the credential file, and every program
// that Pipe connects. Viewer is the name of the last; it has no password and the rights of a reader.
const (
	insider = "gputap"
	reader  = "reader"
	Viewer  = "viewer"
)

// mostReaders bounds the memory for connections.
const mostReaders = 64

// credentialName is the name of the credential file in the store.
const credentialName = "reader.env"

// events are the subjects that readers may subscribe to. Readers have an account without streams, because the server
// does not check the reply subject of a request. In the program's account a reply could itself be a request to delete a
// stream.
const events = "gputap.v1.>"

// requests are the requests that readers may send to the program's account, with the number of their replies. Readers
// may not delete or list JetStream consumers, because they could then disturb those of the program. JetStream removes
// the consumers of readers when they are idle.
var requests = map[string]server.ServiceRespType{
	"$JS.API.INFO": server.Singleton, "$JS.API.STREAM.NAMES": server.Singleton, "$JS.API.STREAM.LIST": server.Singleton,
	"$JS.API.STREAM.INFO.*": server.Singleton, "$JS.API.STREAM.MSG.GET.*": server.Singleton,
	"$JS.API.DIRECT.GET.>":      server.Streamed,
	"$JS.API.CONSUMER.CREATE.>": server.Singleton, "$JS.API.CONSUMER.INFO.*.*": server.Singleton,
	"$JS.API.CONSUMER.MSG.NEXT.*.*": server.Streamed, "$JS.ACK.>": server.Singleton,
	"gputap.v1.q.*.*": server.Streamed,
}

// readers authenticates the users. Their passwords are valid as long as the server runs.
type readers struct {
	inside, outside string
	file            string // "" until publish, and without a listener
	account         atomic.Pointer[server.Account]
}

// admit creates the account of the readers. Before that, the server rejects them.
func (r *readers) admit(s *server.Server) error {
	bus := s.GlobalAccount()
	own, err := s.RegisterAccount("READERS")
	if err != nil {
		return fmt.Errorf("create the account for readers: %w", err)
	}
	only := []*server.Account{own}
	err = errors.Join(bus.AddStreamExport(events, only), own.AddStreamImport(bus, events, ""))
	for subject, answers := range requests {
		err = errors.Join(err, bus.AddServiceExportWithResponse(subject, answers, only), own.AddServiceImport(bus,
			subject, subject))
	}
	if err != nil {
		return fmt.Errorf("export the streams to readers: %w", err)
	}
	r.account.Store(own)
	return nil
}

// listen sets the authentication in the options, and the address if c has one.
func listen(options *server.Options, c config.Embedded) (*readers, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &readers{inside: rand.Text(), outside: rand.Text()}
	options.CustomClientAuthentication = r
	if c.Listen == "" {
		return r, nil
	}
	address, err := c.Address()
	if err != nil {
		return nil, err
	}
	options.DontListen, options.Host, options.Port, options.MaxConn = false, address.Addr().String(),
		int(address.Port()), mostReaders
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT // the server takes 0 as 4222
	}
	if c.TLSCert != "" {
		options.TLSConfig, err = server.GenTLSConfig(&server.TLSConfigOpts{CertFile: c.TLSCert, KeyFile: c.TLSKey})
		if err != nil {
			return nil, fmt.Errorf("embedded.listen_tls_cert, embedded.listen_tls_key: %w", err)
		}
	}
	return r, nil
}

// Check authenticates every connection, including those inside the process. Only those may be of the viewer.
func (r *readers) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	account := r.account.Load()
	switch {
	case given.Username == insider:
		return same(given.Password, r.inside)
	case account == nil:
		return false
	case given.Username == reader && !same(given.Password, r.outside):
		return false
	case given.Username == Viewer && !inside(c.RemoteAddress()):
		return false
	case given.Username != reader && given.Username != Viewer:
		return false
	}
	c.RegisterUser(&server.User{Username: given.Username, Account: account, Permissions: &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: slices.Collect(maps.Keys(requests))},
		Subscribe: &server.SubjectPermission{Allow: []string{events, "_INBOX.>"}},
	}})
	return true
}

// inside reports whether a connection is one that Pipe or Connect made.
func inside(from net.Addr) bool { return from != nil && from.Network() == "pipe" }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// publish writes the credential file. It has the shell variables that the nats command reads, and only users who can
// read the store can read it.
func (r *readers) publish(dir, address string, c config.Embedded) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("parse the address of the embedded NATS server: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	if c.TLSCert != "" {
		u.Scheme = "tls"
	}
	r.file = filepath.Join(dir, credentialName)
	text := fmt.Sprintf("# Read the events of gputap run: set -a; . %s; nats sub 'gputap.v1.ev.>'\n"+
		"NATS_URL=%s\nNATS_USER=%s\nNATS_PASSWORD=%s\n", r.file, u, reader, r.outside)
	r.withdraw() // left over from a run that was killed
	file, err := os.OpenFile(r.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("write the credentials for readers: %w", err)
	}
	return nil
}

// withdraw removes the credential file, which is useless without the server.
func (r *readers) withdraw() {
	if r.file != "" {
		_ = os.Remove(r.file)
	}
}

// Listening returns the address for readers, and the path of the file of mode 0600 with their credentials. Both are
// empty without a listener.
func (s *Server) Listening() (address, credentialFile string) {
	if s.readers.file == "" {
		return "", ""
	}
	return s.server.Addr().String(), s.readers.file
}
