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
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/gputap/gputap/config"
)

// Users of the embedded bus: the program itself, through its pipe, and whoever may read the credential file.
const (
	insider = "gputap"
	reader  = "reader"
)

// mostReaders bounds the memory that connections take.
const mostReaders = 64

// credentialName is the file's name in the store.
const credentialName = "reader.env"

// events are what readers may subscribe to, in an account of their own that has no streams: the server does not check the
// reply subject of a request, and in the program's account its answer could be a request for a stream's end.
const events = "gputap.v1.>"

// requests are what readers may ask of the program's account, and how many answers each has. A JetStream consumer that
// a reader has made ends when it is idle: the right to delete them would be one to disturb the program's own, and so
// would the one to list their names, which nobody can guess.
var requests = map[string]server.ServiceRespType{
	"$JS.API.INFO": server.Singleton, "$JS.API.STREAM.NAMES": server.Singleton, "$JS.API.STREAM.LIST": server.Singleton,
	"$JS.API.STREAM.INFO.*": server.Singleton, "$JS.API.STREAM.MSG.GET.*": server.Singleton, "$JS.API.DIRECT.GET.>": server.Streamed,
	"$JS.API.CONSUMER.CREATE.>": server.Singleton, "$JS.API.CONSUMER.INFO.*.*": server.Singleton,
	"$JS.API.CONSUMER.MSG.NEXT.*.*": server.Streamed, "$JS.ACK.>": server.Singleton,
}

// readers knows the two users by their passwords, which live as long as the server.
type readers struct {
	inside, outside string
	file            string // "" until publish
	account         atomic.Pointer[server.Account]
}

// admit gives readers their account; until then nobody is let in as one.
func (r *readers) admit(s *server.Server) error {
	bus := s.GlobalAccount()
	own, err := s.RegisterAccount("READERS")
	if err != nil {
		return fmt.Errorf("make the account of readers: %w", err)
	}
	only := []*server.Account{own}
	err = errors.Join(bus.AddStreamExport(events, only), own.AddStreamImport(bus, events, ""))
	for subject, answers := range requests {
		err = errors.Join(err, bus.AddServiceExportWithResponse(subject, answers, only), own.AddServiceImport(bus, subject, subject))
	}
	if err != nil {
		return fmt.Errorf("share the bus with readers: %w", err)
	}
	r.account.Store(own)
	return nil
}

// listen has the server listen where c says, and returns nil when that is nowhere.
func listen(options *server.Options, c config.Embedded) (*readers, error) {
	if err := c.Validate(); err != nil || c.Listen == "" {
		return nil, err
	}
	address, err := c.Address()
	if err != nil {
		return nil, err
	}
	options.DontListen, options.Host, options.Port, options.MaxConn = false, address.Addr().String(), int(address.Port()), mostReaders
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT // 0 would be 4222
	}
	if c.TLSCert != "" {
		options.TLSConfig, err = server.GenTLSConfig(&server.TLSConfigOpts{CertFile: c.TLSCert, KeyFile: c.TLSKey})
		if err != nil {
			return nil, fmt.Errorf("embedded.listen_tls_cert, embedded.listen_tls_key: %w", err)
		}
	}
	r := &readers{inside: rand.Text(), outside: rand.Text()}
	options.CustomClientAuthentication = r
	return r, nil
}

// Check is the server's question about each connection, the pipe's too.
func (r *readers) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	switch given.Username {
	case insider:
		return same(given.Password, r.inside)
	case reader:
		account := r.account.Load()
		if !same(given.Password, r.outside) || account == nil {
			return false
		}
		c.RegisterUser(&server.User{Username: reader, Account: account, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: slices.Collect(maps.Keys(requests))},
			Subscribe: &server.SubjectPermission{Allow: []string{events, "_INBOX.>"}},
		}})
		return true
	}
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// publish writes the credential for those who may read the store, in the form of a shell's variables, which
// the nats command understands.
func (r *readers) publish(dir, address string, c config.Embedded) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("address of the embedded bus: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	if c.TLSCert != "" {
		u.Scheme = "tls"
	}
	path := filepath.Join(dir, credentialName)
	text := "# gputap run lets this user read: set -a; . FILE; nats sub 'gputap.v1.ev.>'\n" +
		"NATS_URL=" + u.String() + "\nNATS_USER=" + reader + "\nNATS_PASSWORD=" + r.outside + "\n"
	text = strings.Replace(text, "FILE", path, 1)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of a run that was killed
		return fmt.Errorf("write the credential of readers: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the credential of readers: %w", err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the credential of readers: %w", err)
	}
	r.file = path
	return nil
}

// withdraw removes what is of no use without the server.
func (r *readers) withdraw() {
	if r.file != "" {
		_ = os.Remove(r.file)
	}
}

// Listening is the address where readers may connect, and the file of mode 0600 with their credential; both
// are empty without a listener.
func (s *Server) Listening() (address, credentialFile string) {
	if s.readers == nil {
		return "", ""
	}
	return s.server.Addr().String(), s.readers.file
}
