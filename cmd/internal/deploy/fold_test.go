package deploy

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// TestAFleetAtWork: with no more rights than its role has, each part does its whole work.
func TestAFleetAtWork(t *testing.T) {
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

// foldAtWork reads a shard with a dead letter in it, holds a lease, and saves and reads its state.
func foldAtWork(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	readShard(t, js, name)
	ctx := t.Context()
	leases, err := js.KeyValue(ctx, "gputap_lease")
	check(t, err)
	watch, err := leases.WatchAll(ctx)
	check(t, err)
	defer func() { _ = watch.Stop() }()
	for _, key := range []string{name + ".0", "m." + name + ".a"} {
		revision, err := leases.Create(ctx, key, []byte("{}"))
		check(t, err)
		revision, err = leases.Update(ctx, key, []byte("{}"), revision)
		check(t, err)
		_, err = leases.Get(ctx, key)
		check(t, err)
		check(t, leases.Delete(ctx, key, jetstream.LastRevision(revision)))
	}
	for seen := false; !seen; {
		select {
		case entry := <-watch.Updates():
			seen = entry != nil && entry.Key() == "m."+name+".a" && entry.Operation() == jetstream.KeyValueDelete
		case <-time.After(20 * time.Second):
			t.Fatal("the lease's end was not seen")
		}
	}
	_, err = js.KeyValue(ctx, schema.MetaBucket)
	check(t, err)

	manifest := "gputap.v1.state." + name + ".0.m"
	saved, err := js.Publish(ctx, manifest, []byte("state"), jetstream.WithExpectLastSequencePerSubject(0))
	check(t, err)
	state, err := js.Stream(ctx, "GPUTAP_STATE")
	check(t, err)
	last, err := state.GetLastMsgForSubject(ctx, manifest)
	check(t, err)
	ordered, err := js.OrderedConsumer(ctx, "GPUTAP_STATE", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"gputap.v1.state." + name + ".0.>"}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	check(t, err)
	m, err := ordered.Next(jetstream.FetchMaxWait(20 * time.Second))
	check(t, err)
	if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != saved.Sequence || last.Sequence != saved.Sequence {
		t.Errorf("read %+v and %d, want sequence %d, %v", meta, last.Sequence, saved.Sequence, err)
	}
	_, err = js.Publish(ctx, schema.AlertSubject(name, "default", "gpu-1"), []byte("{}"))
	check(t, err)
}

// named is a fold under another's name.
type named struct {
	*leak.Tracker
	name string
}

func (n named) Name() string { return n.name }

// readShard runs a consumer as its command does, until what it folded is committed.
func readShard(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	fold := func() consumer.Stateful { return named{leak.New(leak.Config{}), name} }
	c := consumer.New(consumer.Options{Checkpoint: 100 * time.Millisecond}, js, fold, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); ; {
		saved, err := consumer.Saved(ctx, js, name, 0)
		check(t, err)
		if saved.Sequence >= 2 {
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
		t.Error("the batch of no use is not among the dead letters")
	}
}
