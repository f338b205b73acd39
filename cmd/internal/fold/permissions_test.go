package fold

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// TestDeployedPermissions runs the server of deploy/nats: each part may do its work, and no more.
func TestDeployedPermissions(t *testing.T) {
	seeds := map[string]string{}
	for _, user := range []string{"ADMIN", "FOLD", "GPU_1"} {
		seeds[user] = newKey(t, "GPUTAP_NKEY_"+user)
	}
	url := deployed(t)
	admin := join(t, config.NATS{URL: url, NKeyFile: seeds["ADMIN"]})
	streams := consumer.StreamOptions{MaxBytes: 64 << 20}
	if err := consumer.EnsureStreams(t.Context(), admin, streams); err != nil {
		t.Fatal(err)
	}
	host := join(t, config.NATS{URL: url, NKeyFile: seeds["GPU_1"], InboxPrefix: "_INBOX.gpu-1"})
	batches := consumertest.Memory(t, "gpu-1")
	batches.Header.Cluster = "default"
	if err := send(t, host, schema.Subject(0, "default", "gpu-1", schema.KindMemory), batches.Message()); err != nil {
		t.Errorf("a host may not publish its own batches: %v", err)
	}
	if err := send(t, host, schema.Subject(0, "default", "gpu-2", schema.KindMemory), batches.Message()); err == nil {
		t.Error("a host may publish another's batches")
	}
	if _, err := host.Stream(short(t), schema.StreamName(0)); err == nil {
		t.Error("a host may look at the streams")
	}
	const get = "$JS.API.DIRECT.GET."
	topology, err := host.Conn().RequestWithContext(short(t), get+"KV_gputap_meta.$KV.gputap_meta.topology", nil)
	if err != nil {
		t.Errorf("a host may not read which shards there are: %v", err)
	} else if read, err := schema.ParseTopology(topology.Data); err != nil || read.Shards != 1 {
		t.Errorf("a host reads %q, %v", topology.Data, err)
	}
	if _, err := host.Conn().RequestWithContext(short(t), get+"GPUTAP_EV_000."+schema.Subject(0, "default", "gpu-1", schema.KindMemory), nil); err == nil {
		t.Error("a host may read batches")
	}
	if err := send(t, host, schema.KeySubject(schema.MetaBucket, schema.TopologyKey), []byte("{}")); err == nil {
		t.Error("a host may write the topology")
	}
	if err := send(t, admin, schema.Subject(0, "default", "gpu-2", schema.KindMemory), []byte("no batch")); err != nil {
		t.Fatal(err)
	}

	reader := join(t, config.NATS{URL: url, NKeyFile: seeds["FOLD"]})
	if read, err := consumer.ReadTopology(t.Context(), reader); err != nil || read.Shards != 1 {
		t.Errorf("a fold reads %+v, %v", read, err)
	}
	if err := send(t, reader, schema.Subject(0, "default", "gpu-1", schema.KindMemory), nil); err == nil {
		t.Error("a fold may publish batches")
	}
	c := consumer.NewReader(consumer.ReaderOptions{}, reader, leak.New(leak.Config{}), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	waiting, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if err := c.WaitFor(waiting, 2); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := c.Stats(); s.Batches != 1 || s.Invalid != 1 || s.DeadLetters != 1 {
		t.Errorf("the fold dealt with %+v, want a batch and a dead letter", s)
	}
}

func newKey(t *testing.T, variable string) (seedFile string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, public)
	seedFile = filepath.Join(t.TempDir(), variable)
	if err := os.WriteFile(seedFile, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return seedFile
}

func deployed(t *testing.T) (url string) {
	t.Helper()
	options, err := server.ProcessConfigFile("../../../deploy/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.StoreDir, options.NoSigs, options.NoLog = "127.0.0.1", -1, t.TempDir(), true, true
	options.JetStreamMaxStore = 1 << 30
	return run(t, options)
}

func join(t *testing.T, c config.NATS) jetstream.JetStream {
	t.Helper()
	p := &app.Process{Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
	nc, js, err := p.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return js
}

// short is for what is expected to be refused: a server refuses by silence.
func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func send(t *testing.T, js jetstream.JetStream, subject string, data []byte) error {
	_, err := js.Publish(short(t), subject, data, jetstream.WithRetryAttempts(0))
	return err
}
