package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/producer/outbox"
	"github.com/gputap/gputap/schema"
)

// serve runs a nats-server of this process, on a port when it is not negative.
func serve(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
		NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server does not start")
	}
	return s
}

func join(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(20*time.Millisecond),
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

// sender publishes as a producer does, without its probes.
type sender struct {
	t     *testing.T
	host  string
	spool *spool
	route *router
	seq   [schema.NumKinds]uint64
	end   func()

	aborted chan error // the error of the router
}

var sent = []schema.Kind{schema.KindMemory, schema.KindLaunch}

func send(t *testing.T, js jetstream.JetStream, host string, promised int) *sender {
	s := &sender{t: t, host: host, spool: newSpool(64 << 20), aborted: make(chan error, 1)}
	s.route = newRouter(js, "c", host, promised, slog.New(slog.DiscardHandler))
	s.route.interval = time.Hour // what moves it is a refused batch
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { s.route.run(ctx, func(err error) { s.aborted <- err }) })
	for _, kind := range sent {
		p := &publisher{js: js, spool: s.spool, route: s.route, kind: kind, metrics: newMetrics(),
			log: slog.New(slog.DiscardHandler)}
		group.Go(func() { p.run(ctx) })
	}
	s.end = sync.OnceFunc(func() {
		stop()
		group.Wait()
	})
	t.Cleanup(s.end)
	return s
}

// push makes the next batch of each kind.
func (s *sender) push() {
	for _, kind := range sent {
		s.seq[kind]++
		b := schema.NewBuilder(kind)
		h := schema.Header{Cluster: "c", Host: s.host, BootID: "b", Run: 1, Seq: s.seq[kind]}
		s.spool.push(outbox.Batch{Kind: kind, Data: b.Encode(&h), Seq: h.Seq})
	}
}

func (s *sender) flush() {
	s.t.Helper()
	until(s.t, s.host+" is acked", func() bool { return s.spool.level().batches == 0 })
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func setUp(t *testing.T, js jetstream.JetStream, shards int) schema.Topology {
	t.Helper()
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: shards, MaxBytes: 256 << 20}); err != nil {
		t.Fatal(err)
	}
	topology, err := bus.ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// read checks that the batches of a host and kind are seq 1, 2, 3, … over the generations in their order; it
// counts those of each generation.
func read(t *testing.T, js jetstream.JetStream, topology schema.Topology) (last map[string]uint64, counts []int) {
	t.Helper()
	last = map[string]uint64{}
	decoder, batch := schema.NewDecoder(), schema.Batch{}
	for _, g := range append(topology.Previous, topology) {
		n := 0
		for _, shard := range g.Numbers() {
			for _, m := range messages(t, js, schema.StreamName(shard)) {
				if err := decoder.Decode(m.Data, &batch); err != nil {
					t.Fatal(err)
				}
				if want := g.Shard(batch.Cluster, batch.Host); want != shard {
					t.Fatalf("%s is in shard %d, not in %d", batch.Host, shard, want)
				}
				key := batch.Host + "/" + batch.Kind.String()
				if batch.Seq != last[key]+1 && batch.Seq > last[key] || batch.Seq == 0 {
					t.Fatalf("%s: seq %d after %d in generation %d", key, batch.Seq, last[key], g.Generation)
				}
				last[key] = max(last[key], batch.Seq)
				n++
			}
		}
		counts = append(counts, n)
	}
	return last, counts
}

func messages(t *testing.T, js jetstream.JetStream, name string) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// TestReshardWhileProducersPublish: over three generations no batch is lost and every batch is in order.
func TestReshardWhileProducersPublish(t *testing.T) {
	url := serve(t, t.TempDir(), -1).ClientURL()
	admin := join(t, url)
	setUp(t, admin, 1)
	const hosts = 12
	senders := make([]*sender, hosts)
	reached := make([]chan struct{}, 4)
	for i := range reached {
		reached[i] = make(chan struct{}, hosts)
	}
	stop := make(chan struct{})
	var pushing sync.WaitGroup
	for i := range senders {
		s := send(t, join(t, url), fmt.Sprintf("gpu-%02d", i), 0)
		senders[i] = s
		pushing.Go(func() {
			for round := 1; ; round++ {
				s.push()
				for s.spool.level().batches > 20 {
					time.Sleep(100 * time.Microsecond)
				}
				if round%100 == 0 && round/100 < len(reached) {
					reached[round/100] <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var topology schema.Topology
	for i, shards := range []int{4, 3, 0} {
		until(t, fmt.Sprint("every host has made ", i+1, "00 batches"),
			func() bool { return len(reached[i+1]) == hosts })
		topology = setUp(t, admin, shards)
	}
	close(stop)
	pushing.Wait()
	for _, s := range senders {
		s.flush()
		s.end()
	}
	last, counts := read(t, admin, topology)
	for _, s := range senders {
		for _, kind := range sent {
			if got := last[s.host+"/"+kind.String()]; got != s.seq[kind] || got < 300 {
				t.Errorf("%s %s: %d batches stored of %d", s.host, kind, got, s.seq[kind])
			}
		}
	}
	if topology.Generation != 3 || len(counts) != 3 || counts[0] == 0 || counts[1] == 0 || counts[2] == 0 {
		t.Errorf("generation %d, batches by generation %v", topology.Generation, counts)
	}
	t.Logf("batches by generation: %v", counts)
}

// TestWrongShardsAbortTheProducer: a producer ends when producer.shards differs from the number of shards in NATS, at
// its start or after a reshard.
func TestWrongShardsAbortTheProducer(t *testing.T) {
	url := serve(t, t.TempDir(), -1).ClientURL()
	admin := join(t, url)
	setUp(t, admin, 4)
	right, wrong := send(t, join(t, url), "right", 4), send(t, join(t, url), "wrong", 16)
	right.push()
	wrong.push()
	right.flush()
	err := <-wrong.aborted
	for _, word := range []string{"it is 16", "NATS has 4", "set it to 4, or to 0"} {
		if !errors.Is(err, ErrShards) || !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
	setUp(t, admin, 5)
	right.push()
	if err := <-right.aborted; !strings.Contains(err.Error(), "it is 4 and NATS has 5") {
		t.Errorf("after the number of shards changed: %v", err)
	}
	for _, s := range []*sender{right, wrong} {
		if s.end(); s.spool.level().batches != len(sent) {
			t.Errorf("%s: %d batches are not acked, want %d", s.host, s.spool.level().batches, len(sent))
		}
	}
}

// TestStaleReplicaDoesNotAbortTheProducer: a stale replica with the earlier number of shards does not end a producer
// whose producer.shards is the new one.
func TestStaleReplicaDoesNotAbortTheProducer(t *testing.T) {
	url := serve(t, t.TempDir(), -1).ClientURL()
	before := schema.Topology{Generation: 1, Shards: 4}
	now, at := before.Next(5), time.Now()
	var asked atomic.Int64
	nc := join(t, url).Conn()
	if _, err := nc.Subscribe(jetstream.DefaultAPIPrefix+"DIRECT.GET.>", func(m *nats.Msg) {
		topology, stored := now, at
		if asked.Add(1) == 2 {
			topology, stored = before, at.Add(-time.Hour)
		}
		answer := &nats.Msg{Data: topology.Encode(), Header: nats.Header{
			"Nats-Time-Stamp": {stored.Format(time.RFC3339Nano)}}}
		if err := m.RespondMsg(answer); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s := send(t, join(t, url), "h", 5)
	for n := range int64(3) {
		until(t, "it asks on", func() bool {
			if len(s.aborted) > 0 {
				t.Fatal(<-s.aborted)
			}
			return asked.Load() > n
		})
		s.route.requestRefresh()
	}
}

// TestProducerWaitsForNATS: batches stay in the spool while NATS is unreachable, has no topology, or has an invalid
// one.
func TestProducerWaitsForNATS(t *testing.T) {
	dir, port := t.TempDir(), bustest.Port(t)
	first := serve(t, dir, port)
	url := first.ClientURL()
	first.Shutdown()
	first.WaitForShutdown()

	s := send(t, join(t, url), "gpu-1", 0)
	s.push()
	serve(t, dir, port)
	admin := join(t, url)
	until(t, "the sender is connected", s.route.js.Conn().IsConnected)
	s.push()
	kv, err := admin.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: schema.MetaBucket})
	if err != nil {
		t.Fatal(err)
	}
	for _, hostile := range []string{"", "\x00\xff", `{"generation":1,"first":0,"shards":99999999}`,
		`[` + strings.Repeat("[", 5000)} {
		if _, err := kv.Put(t.Context(), schema.TopologyKey, []byte(hostile)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.route.read(t.Context()); err == nil {
			t.Errorf("%.20q is taken for a topology", hostile)
		}
	}
	s.push()
	if l := s.spool.level(); l.batches != 6 || s.route.now.Load() != nil {
		t.Errorf("%d batches wait, want 6", l.batches)
	}
	if err := kv.Delete(t.Context(), schema.TopologyKey); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.route.read(t.Context()); !errors.Is(err, errNoTopology) {
		t.Errorf("a deleted topology gives %v", err)
	}
	if err := admin.DeleteKeyValue(t.Context(), schema.MetaBucket); err != nil {
		t.Fatal(err)
	}
	topology := setUp(t, admin, 2)
	s.flush()
	if last, _ := read(t, admin, topology); last["gpu-1/memory"] != 3 {
		t.Errorf("stored up to %v", last)
	}

	// A bus that is set up anew, with fewer generations than the producer knows, is followed too.
	topology = setUp(t, admin, 3)
	s.push()
	s.flush()
	if _, err := bus.RemoveStreams(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	topology = setUp(t, admin, 1)
	s.push()
	s.flush()
	if n := len(messages(t, admin, schema.StreamName(0))); n != len(sent) || topology.Generation != 1 {
		t.Errorf("%d batches on the new bus, of generation %d", n, topology.Generation)
	}
}

// movedBus has streams for the subjects of one shard.
type movedBus struct {
	jetstream.JetStream
	shard atomic.Int64
}

func (b *movedBus) PublishMsg(_ context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if !strings.HasPrefix(m.Subject, fmt.Sprintf("gputap.v1.ev.%d.", b.shard.Load())) {
		return nil, jetstream.ErrNoStreamResponse
	}
	return &jetstream.PubAck{}, nil
}

// TestStreamsCreatedAgainByASlowClock: a topology with a lower generation, stored earlier, is followed after the shard
// of the old route had no stream for long. A stale replica is not followed.
func TestStreamsCreatedAgainByASlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &movedBus{}
		bus.shard.Store(1)
		one := schema.Topology{Generation: 1, Shards: 1}
		r := newRouter(bus, "c", "h", 0, quiet())
		at := time.Now()
		r.follow(one.Next(1), at)
		p := &publisher{js: bus, route: r, spool: newSpool(1 << 20), kind: schema.KindMemory, metrics: newMetrics(),
			log: quiet()}
		ctx, stop := context.WithCancel(t.Context())
		var publishing sync.WaitGroup
		publishing.Go(func() { p.run(ctx) })
		defer publishing.Wait()
		defer stop()
		check := func(what string, late time.Duration, want int) {
			t.Helper()
			push(p.spool, schema.KindMemory, 10, 1)
			time.Sleep(late)
			r.follow(one, at.Add(-time.Hour))
			time.Sleep(lastRetry)
			if shard, left := r.now.Load().shard, p.spool.level().batches; shard != want ||
				(left == 0) != (int64(want) == bus.shard.Load()) {
				t.Errorf("%s: shard %d, want %d; %d batches wait", what, shard, want, left)
			}
		}
		check("acks come", 2*missingFor, 1)
		bus.shard.Store(0)
		check("no stream for some seconds", missingFor/4, 1)
		bus.shard.Store(1)
		check("acks come again", missingFor, 1)
		bus.shard.Store(0)
		check("no stream for long", missingFor+lastRetry, 0)
	})
}

// TestStaleReplicaIsIgnored: the router ignores the topology of a stale replica.
func TestStaleReplicaIsIgnored(t *testing.T) {
	r := newRouter(nil, "c", "h", 0, slog.New(slog.DiscardHandler))
	one := schema.Topology{Generation: 1, Shards: 1}
	two, at := one.Next(1), time.Now()
	tests := []struct {
		name     string
		topology schema.Topology
		stored   time.Time
		want     int
	}{
		{"the first", one, at, 0},
		{"the next", two, at.Add(time.Second), 1},
		{"a copy that lags", one, at, 1},
		{"the same again", two, at.Add(time.Second), 1},
		{"a new bus", one, at.Add(time.Minute), 0},
		{"a later generation, by a clock that is late", two, at, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := r.now.Load()
			r.follow(tt.topology, tt.stored)
			if w := r.now.Load(); w.shard != tt.want || !strings.HasPrefix(w.subjects[schema.KindCopy],
				fmt.Sprintf("gputap.v1.ev.%d.", tt.want)) {
				t.Errorf("shard %d, subject %s, want shard %d", w.shard, w.subjects[schema.KindCopy], tt.want)
			}
			if before == nil {
				return
			}
			select {
			case <-before.replaced:
				if before == r.now.Load() {
					t.Error("the present route is marked as replaced")
				}
			default:
				if before != r.now.Load() {
					t.Error("the old route is not marked as replaced")
				}
			}
		})
	}
}
