package deploy

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

// TestRolesAllowTheWholeWork: hosts and folds need no more rights than their roles have.
func TestRolesAllowTheWholeWork(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	url := serve(t, files+"nats.conf").ClientURL()
	as := func(user string) (*nats.Conn, jetstream.JetStream) {
		return join(t, user, config.NATS{URL: url, NKeyFile: seeds[user]}, quiet())
	}
	_, admin := as("admin")
	setUp(t, admin)
	_, host := as("gpu-1")
	hostAtWork(t, host)
	_, err := admin.Publish(t.Context(), schema.Subject(0, "default", "gpu-2", schema.KindMemory), []byte("no batch"))
	check(t, err)
	_, fold := as("leak")
	foldAtWork(t, fold, "leak")
	_, other := as("launch")
	foldAtWork(t, other, "launch")
}

// TestStreamsMoveIntoAnAccount: the streams of a server without accounts belong to BUS once their folder does.
func TestStreamsMoveIntoAnAccount(t *testing.T) {
	t.Parallel()
	seeds, store := newKeys(t), t.TempDir()
	var before map[string]string
	for _, file := range []string{"server.conf", "nats.conf"} {
		s := start(t, load(t, files+file, store, 4<<30))
		c := config.NATS{URL: s.ClientURL()}
		if file == "nats.conf" {
			c.NKeyFile = seeds["admin"]
		}
		nc, admin := join(t, "admin", c, quiet())
		if file == "server.conf" {
			setUp(t, admin)
			stock(t, admin)
			before = inventory(t, admin, "")
		} else if after := inventory(t, admin, ""); !maps.Equal(before, after) {
			t.Errorf("was %v, is %v", before, after)
		}
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
		if file == "server.conf" {
			check(t, os.Rename(filepath.Join(store, "jetstream", "$G"), filepath.Join(store, "jetstream", "BUS")))
		}
	}
}

// hostAtWork publishes a batch and reads the topology.
func hostAtWork(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	batches := consumertest.Memory(t, "gpu-1")
	batches.Header.Cluster = "default"
	_, err := js.Publish(t.Context(), schema.Subject(0, "default", "gpu-1", schema.KindMemory), batches.Message())
	check(t, err)
	got, err := js.Conn().RequestWithContext(t.Context(), topologyGet, nil)
	check(t, err)
	if topology, err := schema.ParseTopology(got.Data); err != nil || topology.Shards != 1 {
		t.Errorf("the topology is %+v, %v", topology, err)
	}
}

// foldAtWork folds a shard with a dead letter twice, with lease and checkpoints: the second instance restores the first
// one's checkpoint. Then it raises an alert.
func foldAtWork(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	readShard(t, js, name)
	readShard(t, js, name)
	if saved, err := shard.Saved(t.Context(), js, name, 0); err != nil || saved.Epoch != 2 || len(saved.State) == 0 {
		t.Errorf("%s has saved %+v, %v", name, saved, err)
	}
	_, err := js.Publish(t.Context(), schema.AlertSubject(name, "default", "gpu-1"), []byte("{}"))
	check(t, err)
}

// named is a fold under another name.
type named struct {
	*leak.Tracker
	name string
}

func (n named) Name() string { return n.name }

// readShard runs a consumer as its program does, until it owns the shard and has committed its state.
func readShard(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	before, err := shard.Saved(t.Context(), js, name, 0)
	check(t, err)
	fold := func() consumer.Stateful { return named{leak.New(leak.Config{}), name} }
	c := consumer.New(consumer.Options{Checkpoint: 100 * time.Millisecond}, js, fold, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); ; {
		saved, err := shard.Saved(ctx, js, name, 0)
		check(t, err)
		if saved.Sequence >= 2 && saved.Epoch > before.Epoch {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has committed up to %d, want 2", name, saved.Sequence)
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	letters, err := js.Stream(t.Context(), schema.DeadLetterStream)
	check(t, err)
	if n := letters.CachedInfo().State.Msgs; n == 0 {
		t.Error("the invalid batch is not in the dead letters")
	}
}
