package deploy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/bus"
)

const files = "../../../deploy/nats/"

// users returns the users of users-nkey.conf and the suffixes of their variables.
func users() map[string]string {
	list := map[string]string{
		"admin": "ADMIN", "reader-default": "READER_CLUSTER", "reader-memory": "READER_KIND", "gpu-1": "GPU_1",
		"gpu-2": "GPU_2", "recorder": "RECORDER", "viewer": "VIEWER",
	}
	for _, name := range fold.Names() {
		list[name] = strings.ToUpper(name)
	}
	return list
}

// newKeys creates an nkey for each user: the public key in a variable, the seed in a file.
func newKeys(t *testing.T) (seedFiles map[string]string) {
	t.Helper()
	seedFiles = map[string]string{}
	for user, variable := range users() {
		public, seed := newUser(t)
		setenv(t, "GPUTAP_NKEY_"+variable, public)
		seedFiles[user] = keep(t, variable, seed)
	}
	return seedFiles
}

func newUser(t *testing.T) (public string, seed []byte) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	check(t, err)
	public, err = pair.PublicKey()
	check(t, err)
	seed, err = pair.Seed()
	check(t, err)
	return public, seed
}

// keep writes a secret into a file that only its owner can read.
func keep(t *testing.T, name string, data []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, data, 0o600))
	return path
}

// serve runs a server with a file of deploy/nats.
func serve(t *testing.T, path string) *server.Server {
	t.Helper()
	return start(t, load(t, path, t.TempDir(), 4<<30))
}

func start(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	s := launch(t, options)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server did not start")
	}
	return s
}

// launch does not wait: a server of a cluster is ready once the others run.
func launch(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(options)
	check(t, err)
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// join connects as a program of gputap does.
func join(t *testing.T, user string, c config.NATS, log *slog.Logger) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, js, err := process(user, log).Connect(inbox(user, c))
	check(t, err)
	t.Cleanup(nc.Close)
	eventually(t, "a connection of "+user, nc.IsConnected)
	return nc, js
}

func process(user string, log *slog.Logger) *app.Process {
	return &app.Process{Name: "gputap-" + user, Log: log, Metrics: prometheus.NewRegistry(), Stderr: os.Stderr}
}

// inbox sets the inbox prefix as a producer does itself (TestInboxOfAProducer), and a reader in its own program.
func inbox(user string, c config.NATS) config.NATS {
	switch {
	case strings.HasPrefix(user, "gpu-"):
		c.InboxPrefix = "_INBOX.default." + user
	case user == "recorder": // its program is gputap
		c.InboxPrefix = "_INBOX.gputap"
	case strings.HasPrefix(user, "reader-"):
		c.InboxPrefix = "_INBOX." + user
	case user == "viewer":
		c.InboxPrefix = "_INBOX.gputap" // its program is gputap
	}
	return c
}

// setUp creates the streams and buckets of `gputap stream init`.
func setUp(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	check(t, bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
