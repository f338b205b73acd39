package fold

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// raised are the alerts that folds raise, in their published form. After a takeover a fold raises some again.
type raised struct {
	mu  sync.Mutex
	set map[string]bool
}

func newRaised() *raised { return &raised{set: map[string]bool{}} }

func (r *raised) add(a alert.Alert) {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set[string(data)] = true
}

func (r *raised) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.set))
}

// shared is one instance of a consumer.
type shared struct {
	*consumer.Consumer
	js   jetstream.JetStream
	kill func() // as if the process were gone
}

func startShared(t *testing.T, js jetstream.JetStream, name string, to *raised,
	create func(context.Context, jetstream.JetStream, *raised) consumer.Stateful) *shared {
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	o := consumer.Options{Instance: name, Checkpoint: 50 * time.Millisecond, Settle: 50 * time.Millisecond,
		Retry: 20 * time.Millisecond}
	c := consumer.New(o, js, func() consumer.Stateful { return create(ctx, js, to) }, log)
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	s := &shared{c, js, sync.OnceFunc(func() { js.Conn().Close(); cancel(); <-done })}
	t.Cleanup(s.kill)
	return s
}

// wait waits until the instance owns a generation and has folded it.
func (s *shared) wait(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	topology, err := bus.ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	bustest.Eventually(t, "the shards are owned", func() bool {
		var own []int
		for _, shard := range s.Shards() {
			own = append(own, shard.Number)
		}
		return slices.Equal(own, topology.Numbers())
	})
	for range 2 { // the second time for the summaries that other shards stored meanwhile
		for _, shard := range s.Shards() {
			stream, err := js.Stream(t.Context(), schema.StreamName(shard.Number))
			if err != nil {
				t.Fatal(err)
			}
			if err := shard.Reader.WaitFor(t.Context(), stream.CachedInfo().State.LastSeq); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// alerts are those that the newest shards know.
func (s *shared) alerts(t *testing.T) (all []string) {
	s.Each(func(_ int, f consumer.Stateful) {
		for _, part := range f.(interface{ Parts() []consumer.Fold }).Parts() {
			of, has := part.(interface{ Alerts() []alert.Alert })
			if !has {
				continue
			}
			for _, a := range of.Alerts() {
				data, err := json.Marshal(a)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(data))
			}
		}
	})
	return all
}

// TestAlertsSurviveReshardAndTakeover: the alerts equal those of one quiet shard. The alert of a slow rank fires before
// the job and its hosts move to new shards. It clears after another instance has taken these over. The alert of a rank
// that leaks fires after its host has moved.
func TestAlertsSurviveReshardAndTakeover(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		messages func(testing.TB) [][]byte
		create   func(context.Context, jetstream.JetStream, *raised) consumer.Stateful
		first    int // alerts before the reshard
		changes  int // of all alerts
	}{
		{"straggler", slowRank, func(ctx context.Context, js jetstream.JetStream, to *raised) consumer.Stateful {
			return AnomaliesIn(ctx, config.DefaultAnomaly(), js, to.add, slog.New(slog.DiscardHandler))
		}, 1, 2},
		{"leak_growth", leakingRank, func(_ context.Context, _ jetstream.JetStream, to *raised) consumer.Stateful {
			c := config.DefaultLeak()
			c.Window = time.Second
			return newMemory(c, to.add)
		}, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			messages := row.messages(t)
			quiet, want := bustest.Connect(t), newRaised()
			setShards(t, quiet, 1)
			publishAll(t, quiet, messages)
			truth := startShared(t, quiet, "quiet", want, row.create)
			truth.wait(t, quiet)
			if n := len(want.all()); n != row.changes {
				t.Fatalf("a quiet shard raises %d alerts, want %d: %q", n, row.changes, want.all())
			}
			account, got := bustest.NewAccount(t), newRaised()
			admin := account.Connect()
			var instance *shared
			published := 0
			for i, phase := range []struct {
				shards, percent int
				kill            bool
			}{{2, 30, false}, {3, 45, true}, {3, 60, false}, {1, 100, false}} {
				setShards(t, admin, phase.shards)
				if instance == nil {
					instance = startShared(t, account.Connect(), strconv.Itoa(i), got, row.create)
				}
				n := len(messages) * phase.percent / 100
				publishAll(t, admin, messages[published:n])
				published = n
				instance.wait(t, admin)
				if i == 0 && len(got.all()) != row.first {
					t.Errorf("before the reshard %q are raised, want %d", got.all(), row.first)
				}
				if phase.kill {
					instance.kill()
					instance = nil
				}
			}
			if !slices.Equal(got.all(), want.all()) {
				t.Errorf("raised:\n%q\nof a quiet shard:\n%q", got.all(), want.all())
			}
			if a, b := instance.alerts(t), truth.alerts(t); len(b) != 1 || !slices.Equal(a, b) {
				t.Errorf("the newest shards know the alerts\n%q\na quiet shard\n%q", a, b)
			}
		})
	}
}

// slowRank returns the batches of a job. One rank is slow until it recovers.
func slowRank(t testing.TB) (messages [][]byte) {
	j := &consumertest.Job{Name: "slurm:7.0", Ranks: 8, PerHost: 2, Random: rand.New(rand.NewPCG(1, 2)),
		Step: consumertest.NCCL(20, 5, 100*time.Millisecond, 30*time.Millisecond, 0)}
	j.Play(40 * time.Second)
	j.Step = consumertest.NCCL(20, -1, 100*time.Millisecond, 0, 0)
	for _, m := range j.Messages(t, 100*time.Second) {
		messages = append(messages, m.Data)
	}
	return messages
}

// leakingRank returns the batches of memory and the heartbeats of a rank that leaks.
func leakingRank(t testing.TB) (messages [][]byte) {
	js, path := bustest.Connect(t), filepath.Join(t.TempDir(), "log")
	setShards(t, js, 1)
	s, err := simulate.New(simulate.Options{Conns: []*nats.Conn{js.Conn()}, Cluster: "test", Hosts: 8, Rate: 160,
		Duration: 100 * time.Second, Start: consumertest.Wall, Seed: 1, BatchAge: time.Second, Jobs: 1,
		LeakRank: 16 << 20, LogPath: path, Drain: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for e, err := range simulate.ReadLog(path) {
		if err != nil {
			t.Fatal(err)
		}
		b := consumertest.Decode(t, e.Data)
		if b.Host == "sim-0005" && (b.Kind == schema.KindMemory || b.Kind == schema.KindHost) {
			messages = append(messages, bytes.Clone(e.Data))
		}
	}
	return messages
}

func setShards(t testing.TB, js jetstream.JetStream, shards int) {
	t.Helper()
	err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: shards, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
}

func publishAll(t *testing.T, js jetstream.JetStream, messages [][]byte) {
	t.Helper()
	topology, err := bus.ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		b := consumertest.Decode(t, m)
		subject := schema.Subject(topology.Shard(b.Cluster, b.Host), b.Cluster, b.Host, b.Kind)
		if _, err := js.Publish(t.Context(), subject, m); err != nil {
			t.Fatal(err)
		}
	}
}
