package producer

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/gputap/gputap/schema"
)

// fleetBus runs a server with the files of deploy/nats, where host gpu-1 is in cluster "c".
func fleetBus(t *testing.T) (as func(user, inbox string) jetstream.JetStream) {
	t.Helper()
	dir, keys := t.TempDir(), map[string]nkeys.KeyPair{}
	for _, user := range []string{"ADMIN", "LEAK", "ANOMALY", "LAUNCH", "BANDWIDTH", "RECORDER",
		"READER_CLUSTER", "READER_KIND", "VIEWER", "GPU_1", "GPU_2"} {
		var err error
		if keys[user], err = nkeys.CreateUser(); err != nil {
			t.Fatal(err)
		}
		public, err := keys[user].PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("GPUTAP_NKEY_"+user, public)
	}
	for _, name := range []string{"nats.conf", "server.conf", "roles.conf", "users-nkey.conf"} {
		data, err := os.ReadFile("../deploy/nats/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "default.gpu-1", "c.gpu-1")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GPUTAP_SERVER", "bus-1")
	options, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.StoreDir, options.NoSigs, options.NoLog,
		options.JetStreamMaxStore = "127.0.0.1", -1, dir, true, true, 4<<30
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	return func(user, inbox string) jetstream.JetStream {
		public, _ := keys[user].PublicKey()
		nc, err := nats.Connect(s.ClientURL(), nats.Nkey(public, keys[user].Sign), nats.CustomInboxPrefix(inbox),
			nats.ReconnectBufSize(-1))
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
}

// TestHostPermissionsAreEnough: with the permissions of its role a producer waits for NATS, publishes, and moves to
// other shards.
func TestHostPermissionsAreEnough(t *testing.T) {
	as := fleetBus(t)
	admin, js := as("ADMIN", "_INBOX.gputap-admin"), as("GPU_1", "_INBOX.c.gpu-1")
	r := newRouter(js, "c", "gpu-1", 0, quiet())
	if _, _, err := r.read(t.Context()); !errors.Is(err, errNoTopology) {
		t.Errorf("a bare bus gives %v", err)
	}
	p := &publisher{js: js, metrics: newMetrics(), log: quiet()}
	if err := p.publish(t.Context(), schema.Subject(0, "c", "gpu-1", schema.KindMemory), nil,
		ackTimeout); !errors.Is(err, errNoStream) {
		t.Errorf("a batch for a bare bus gives %v", err)
	}
	foreign := schema.Subject(0, "c", "gpu-2", schema.KindMemory)
	err := p.publish(t.Context(), foreign, nil, time.Second)
	for _, part := range []string{foreign, js.Conn().ConnectedUrl(), "ermissions", "deadline exceeded"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("a batch of another host gives %v, without %q", err, part)
		}
	}
	setUp(t, admin, 1)
	s := send(t, js, "gpu-1", 0)
	for range 3 {
		s.push()
	}
	s.flush()
	topology := setUp(t, admin, 4)
	for range 3 {
		s.push()
	}
	s.flush()
	last, counts := read(t, admin, topology)
	want := map[string]uint64{"gpu-1/memory": 6, "gpu-1/launch": 6}
	if !maps.Equal(last, want) || !slices.Equal(counts, []int{6, 6}) {
		t.Errorf("stored up to %v, %v of each generation", last, counts)
	}
}
