package bustest

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const startTimeout = time.Minute

var shared struct {
	sync.Mutex
	dir      string // set by Main
	server   *server.Server
	accounts int
}

// Main runs the tests of a package and then stops the shared server. Call it from TestMain.
func Main(m *testing.M) (code int) {
	flag.Parse()
	// Parallel tests mostly wait for leases and timers: more of them than CPUs may run.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "bustest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.dir = dir
	code = m.Run()
	if shared.server != nil {
		stop(shared.server)
	}
	_ = os.RemoveAll(dir) // a temporary directory
	return code
}

// Account is an account with JetStream on the shared server.
type Account struct {
	t    testing.TB
	name string
}

// NewAccount returns an account that no other test uses.
func NewAccount(t testing.TB) *Account {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = start(t, &server.Options{
			Port: -1, JetStream: true, StoreDir: shared.dir, JetStreamMaxStore: 1 << 50, JetStreamMaxMemory: 1 << 40,
			CustomClientAuthentication: byAccount{},
		})
	}
	shared.accounts++
	name := fmt.Sprint("account-", shared.accounts)
	account, err := shared.server.RegisterAccount(name)
	if err != nil {
		t.Fatal(err)
	}
	unlimited := server.JetStreamAccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MemoryMaxStreamBytes: -1,
		StoreMaxStreamBytes: -1,
	}
	if err := account.EnableJetStream(map[string]server.JetStreamAccountLimits{"": unlimited}, nil); err != nil {
		t.Fatal(err)
	}
	return &Account{t, name}
}

// Connect returns a new connection to the account.
func (a *Account) Connect() jetstream.JetStream {
	a.t.Helper()
	return Dial(a.t, shared.server.ClientURL(), nats.UserInfo(a.name, ""))
}

// Connect returns a connection to a new account.
func Connect(t testing.TB) jetstream.JetStream {
	t.Helper()
	return NewAccount(t).Connect()
}

// byAccount puts a client into the account that has the name of its user.
type byAccount struct{}

func (byAccount) Check(c server.ClientAuthentication) bool {
	name := c.GetOpts().Username
	account, err := shared.server.LookupAccount(name)
	if err != nil {
		return false
	}
	c.RegisterUser(&server.User{Username: name, Account: account})
	return true
}

// Server is a server that a test can stop and start.
type Server struct {
	t      testing.TB
	Dir    string // store
	port   int
	server *server.Server
}

// NewServer returns a running server with a store in dir; "": in a new directory. It stops when the test ends.
func NewServer(t testing.TB, dir string) *Server {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	s := &Server{t: t, Dir: dir, port: Port(t)}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// Start starts the server on the port that it had before.
func (s *Server) Start() {
	s.t.Helper()
	s.server = start(s.t, &server.Options{Port: s.port, JetStream: true, StoreDir: s.Dir})
}

// URL returns the address of the server.
func (s *Server) URL() string { return s.server.ClientURL() }

// Stop stops the server and waits until it has.
func (s *Server) Stop() { stop(s.server) }

// Connect returns a new connection, which reconnects for ever.
func (s *Server) Connect() jetstream.JetStream {
	s.t.Helper()
	return Dial(s.t, fmt.Sprintf("nats://127.0.0.1:%d", s.port))
}

// Run runs a server with options until the test ends. It adds host, store and log.
func Run(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.StoreDir = t.TempDir()
	if o.Port == 0 {
		o.Port = -1
	}
	s := start(t, o)
	t.Cleanup(func() { stop(s) })
	return s
}

func start(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoSigs, o.NoLog = "127.0.0.1", true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(startTimeout) {
		t.Fatal("nats-server does not start")
	}
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// Dial returns a connection that reconnects for ever, and closes when the test ends.
func Dial(t testing.TB, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectBufSize(-1))
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Eventually waits until ok returns true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
