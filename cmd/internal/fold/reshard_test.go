package fold

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// raised counts the alerts that folds raise, by their published form.
type raised struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *raised) add(a alert.Alert) {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[string(data)]++
}

func (r *raised) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.count))
}

// shared is one instance of gputap-anomaly that shares the shards.
type shared struct {
	*consumer.Consumer
	js   jetstream.JetStream
	kill func() // as if the process were gone
}

func startShared(t *testing.T, js jetstream.JetStream, name string, to *raised) *shared {
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	o := consumer.Options{Instance: name, Checkpoint: 50 * time.Millisecond, Settle: 50 * time.Millisecond,
		Retry: 20 * time.Millisecond}
	c := consumer.New(o, js, func() consumer.Stateful {
		return AnomaliesIn(ctx, config.ModeDefault, js, to.add, log)
	}, log)
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

// jobAlerts are the alerts of the newest shards.
func (s *shared) jobAlerts(t *testing.T) (all []string) {
	s.Each(func(_ int, f consumer.Stateful) {
		for _, a := range f.(*Anomalies).Jobs.Alerts() {
			data, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
	})
	return all
}

// TestJobsSurviveReshardAndTakeover: a slow rank recovers. Its alert fires before the job and its hosts move to new
// shards, and clears after another instance has taken these over. All alerts equal those of one quiet shard.
func TestJobsSurviveReshardAndTakeover(t *testing.T) {
	t.Parallel()
	j := &consumertest.Job{Name: "slurm:7.0", Ranks: 8, PerHost: 2, Random: rand.New(rand.NewPCG(1, 2)),
		Step: consumertest.NCCL(20, 5, 100*time.Millisecond, 30*time.Millisecond, 0)}
	j.Play(40 * time.Second)
	j.Step = consumertest.NCCL(20, -1, 100*time.Millisecond, 0, 0)
	messages := j.Messages(t, 100*time.Second)

	quiet := bustest.Connect(t)
	if err := bus.EnsureStreams(t.Context(), quiet, bus.StreamOptions{Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	publishAll(t, quiet, messages)
	want := &raised{count: map[string]int{}}
	truth := startShared(t, quiet, "quiet", want)
	truth.wait(t, quiet)
	if n := len(want.all()); n != 2 {
		t.Fatalf("a quiet shard raises %d alerts, want that one fires and clears: %q", n, want.all())
	}

	account, got := bustest.NewAccount(t), &raised{count: map[string]int{}}
	admin := account.Connect()
	var instance *shared
	from := 0
	for _, phase := range []struct {
		shards int
		until  time.Duration
		kill   bool
	}{{2, 35 * time.Second, false}, {3, 45 * time.Second, true}, {3, 60 * time.Second, false}, {1, time.Hour, false}} {
		o := bus.StreamOptions{Shards: phase.shards, Lease: time.Second}
		if err := bus.EnsureStreams(t.Context(), admin, o); err != nil {
			t.Fatal(err)
		}
		if instance == nil {
			instance = startShared(t, account.Connect(), phase.until.String(), got)
		}
		n := from
		for n < len(messages) && messages[n].At < phase.until {
			n++
		}
		publishAll(t, admin, messages[from:n])
		from = n
		instance.wait(t, admin)
		if phase.shards == 2 && len(got.all()) != 1 {
			t.Errorf("before the reshard %q are raised, want that one fires", got.all())
		}
		if phase.kill {
			instance.kill()
			instance = nil
		}
	}
	if !slices.Equal(got.all(), want.all()) {
		t.Errorf("raised:\n%q\nof a quiet shard:\n%q", got.all(), want.all())
	}
	if a, b := instance.jobAlerts(t), truth.jobAlerts(t); len(b) != 1 || !slices.Equal(a, b) {
		t.Errorf("the newest shards know the alerts\n%q\na quiet shard\n%q", a, b)
	}
}

func publishAll(t *testing.T, js jetstream.JetStream, messages []consumertest.Message) {
	t.Helper()
	topology, err := bus.ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		b := consumertest.Decode(t, m.Data)
		subject := schema.Subject(topology.Shard(b.Cluster, b.Host), b.Cluster, b.Host, b.Kind)
		if _, err := js.Publish(t.Context(), subject, m.Data); err != nil {
			t.Fatal(err)
		}
	}
}
