package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

func reshard(t testing.TB, js jetstream.JetStream, shards int) schema.Topology {
	t.Helper()
	if err := EnsureStreams(t.Context(), js, StreamOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	return topologyOf(t, js)
}

func topologyOf(t testing.TB, js jetstream.JetStream) schema.Topology {
	t.Helper()
	topology, err := ReadTopology(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func info(t testing.TB, js jetstream.JetStream, name string) *jetstream.StreamInfo {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s.CachedInfo()
}

// nothingLeftToDo is what a second call finds.
func nothingLeftToDo(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	plan, err := PlanStreams(t.Context(), js, StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range plan.Steps {
		t.Errorf("left to do: %s %s, %s", step.Action, step.Name, step.Detail)
	}
}

func TestABusIsSetUpOnce(t *testing.T) {
	js := newBus(t).connect()
	if _, err := ReadTopology(t.Context(), js); !errors.Is(err, ErrNoTopology) {
		t.Errorf("a bare bus gives %v", err)
	}
	if err := EnsureStreams(t.Context(), js, StreamOptions{Shards: 3, MaxAge: 2 * time.Hour, MaxBytes: 300 << 20}); err != nil {
		t.Fatal(err)
	}
	want := schema.Topology{Generation: 1, Shards: 3}
	if got := topologyOf(t, js); !got.Equal(want) {
		t.Errorf("topology %+v", got)
	}
	nothingLeftToDo(t, js)
	ev, state := info(t, js, schema.StreamName(2)).Config, info(t, js, schema.StateStream).Config
	if ev.MaxBytes != 100<<20 || ev.MaxAge != 2*time.Hour || ev.Subjects[0] != "gputap.v1.ev.2.>" || !ev.DenyDelete {
		t.Errorf("shard 2: %+v", ev)
	}
	if state.MaxBytes != 75<<20 || state.MaxMsgsPerSubject != 1 || !state.AllowAtomicPublish || state.Discard != jetstream.DiscardNew ||
		state.Compression != jetstream.S2Compression || !state.AllowDirect || state.Storage != jetstream.FileStorage {
		t.Errorf("state: %+v", state)
	}
	leases, err := js.KeyValue(t.Context(), schema.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	status, err := leases.Status(t.Context())
	if err != nil || status.TTL() != 10*time.Second {
		t.Errorf("leases: %+v %v", status, err)
	}
	if c := info(t, js, schema.BucketStream(schema.LeaseBucket)).Config; c.Storage != jetstream.FileStorage {
		t.Errorf("leases on %s", c.Storage)
	}
	if _, err := leases.Create(t.Context(), "leak.0", []byte("{}")); err != nil {
		t.Error(err)
	}
	if _, err := leases.Create(t.Context(), "leak.0", nil); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("a lease is taken twice: %v", err)
	}

	// What is not spoken of stays, in another generation too.
	topology := reshard(t, js, 6)
	if c := info(t, js, schema.StreamName(3)).Config; c.MaxBytes != 50<<20 || c.MaxAge != 2*time.Hour || topology.First != 3 {
		t.Errorf("shard 3 of %+v: %+v", topology, c)
	}
	nothingLeftToDo(t, js)
}

func TestAClosedGenerationTakesNothingAndGivesAll(t *testing.T) {
	js := connectReady(t)
	publishMemory(t, js, 1, 2, 3)
	topology := reshard(t, js, 4)
	if want := (schema.Topology{Generation: 1, Shards: 1}).Next(4); !topology.Equal(want) {
		t.Errorf("topology %+v, want %+v", topology, want)
	}
	if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", schema.KindMemory), memory(4)); err == nil {
		t.Error("a closed shard takes a batch")
	}
	closed := info(t, js, schema.StreamName(0))
	if !closed.Config.Sealed || closed.State.Msgs != 3 || closed.Config.MaxBytes > slack+1<<20 {
		t.Errorf("the closed shard: sealed %t, %d messages, %d bytes reserved", closed.Config.Sealed, closed.State.Msgs, closed.Config.MaxBytes)
	}
	fold := &recorder{}
	c, _ := start(t, js, fold, ReaderOptions{})
	wait(t, c, 3)
	expect(t, fold, 1, 2, 3)
	if _, err := js.Publish(t.Context(), schema.Subject(1, "c", "h", schema.KindMemory), memory(4)); err != nil {
		t.Error(err)
	}
}

func TestABusOfBeforeTopologies(t *testing.T) {
	for _, tt := range []struct {
		name    string
		batches int
		want    schema.Topology
	}{
		{"with batches", 2, schema.Topology{Generation: 1, Shards: 1}.Next(2)},
		{"never used", 0, schema.Topology{Generation: 1, Shards: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			js := newBus(t).connect()
			if err := ensureStream(t.Context(), js, shardConfig(0, StreamOptions{Shards: 1, MaxBytes: 1 << 20})); err != nil {
				t.Fatal(err)
			}
			publishMemory(t, js, upTo(uint64(tt.batches))...)
			if got := reshard(t, js, 2); !got.Equal(tt.want) {
				t.Errorf("topology %+v, want %+v", got, tt.want)
			}
			if s := info(t, js, schema.StreamName(0)); s.State.Msgs != uint64(tt.batches) || s.Config.Sealed != (tt.batches > 0) {
				t.Errorf("%d batches, sealed %t", s.State.Msgs, s.Config.Sealed)
			}
			nothingLeftToDo(t, js)
		})
	}
	t.Run("kept as it is", func(t *testing.T) {
		js := newBus(t).connect()
		if err := ensureStream(t.Context(), js, shardConfig(0, StreamOptions{Shards: 1, MaxBytes: 1 << 20})); err != nil {
			t.Fatal(err)
		}
		publishMemory(t, js, 1)
		if got := reshard(t, js, 0); !got.Equal(schema.Topology{Generation: 1, Shards: 1}) {
			t.Errorf("topology %+v", got)
		}
	})
}

// TestTwoAtOnce: of two that want other numbers one wins; those that want the same all do.
func TestTwoAtOnce(t *testing.T) {
	b := newBus(t)
	js := b.connect()
	for round, wanted := range [][]int{{2, 3}, {5, 5, 5}, {1, 4, 2, 7}} {
		clients, errs := make([]jetstream.JetStream, len(wanted)), make([]error, len(wanted))
		plans := make([]*Plan, len(wanted))
		for i, shards := range wanted {
			clients[i] = b.connect()
			plan, err := PlanStreams(t.Context(), clients[i], StreamOptions{Shards: shards, MaxBytes: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			plans[i] = plan
		}
		var group sync.WaitGroup
		for i := range wanted {
			group.Go(func() { errs[i] = plans[i].Apply(t.Context()) })
		}
		group.Wait()
		topology, won := topologyOf(t, js), 0
		for i, shards := range wanted {
			switch {
			case errs[i] == nil && shards == topology.Shards:
				won++
			case errs[i] == nil:
				t.Errorf("round %d: %d shards are won, and the bus has %d", round, shards, topology.Shards)
			case !errors.Is(errs[i], errRaced):
				t.Errorf("round %d: %d shards: %v", round, shards, errs[i])
			}
		}
		if topology.Generation != round+1 || won == 0 || wanted[0] == wanted[1] && won != len(wanted) {
			t.Errorf("round %d: %d won, topology %+v", round, won, topology)
		}
		if err := EnsureStreams(t.Context(), js, StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		nothingLeftToDo(t, js)
	}
}

// TestBrokenOff: a change that ends after any of its steps leaves a bus that another call completes, and that
// takes batches at each moment where its topology says so or nowhere.
func TestBrokenOff(t *testing.T) {
	js := newBus(t).connect()
	reshard(t, js, 1)
	for shards := 2; ; shards++ {
		plan, err := PlanStreams(t.Context(), js, StreamOptions{Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		if shards-2 >= len(plan.Steps) {
			break
		}
		before := topologyOf(t, js)
		for _, step := range plan.Steps[:shards-2] {
			if err := step.do(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		now := topologyOf(t, js)
		subject := schema.Subject(now.Shard("c", "h"), "c", "h", schema.KindMemory)
		if _, err := js.Publish(t.Context(), subject, memory(1)); err != nil {
			t.Errorf("after %d steps of %d, from %+v: %v", shards-2, len(plan.Steps), before, err)
		}
		if got := reshard(t, js, shards); got.Shards != shards {
			t.Errorf("%d shards, want %d", got.Shards, shards)
		}
		nothingLeftToDo(t, js)
		for _, g := range topologyOf(t, js).Previous {
			if _, err := RemoveGeneration(t.Context(), js, g.Generation); err != nil {
				t.Fatal(err)
			}
		}
		if shards == 20 {
			break
		}
	}
}

func TestRefusals(t *testing.T) {
	single := func(o server.Options) func(*testing.T) jetstream.JetStream {
		return func(t *testing.T) jetstream.JetStream { return serve(t, o) }
	}
	tests := []struct {
		name string
		bus  func(*testing.T) jetstream.JetStream
		o    StreamOptions
		want []string
	}{
		{"no JetStream", single(server.Options{}), StreamOptions{}, []string{"no JetStream", "jetstream block"}},
		{"replicas on one server", single(server.Options{JetStream: true}), StreamOptions{Replicas: 3}, []string{"3 replicas", "--replicas 1"}},
		{"storage", single(server.Options{JetStream: true, JetStreamMaxStore: 1 << 30}), StreamOptions{Shards: 16, MaxBytes: 4 << 30},
			[]string{"reserve 5.3 GiB", "about 1023.0 MiB", "max_file_store", "--max-bytes"}},
		{"too many shards", single(server.Options{JetStream: true}), StreamOptions{Shards: 2000}, []string{"2000 shards", "1 to 1024"}},
		{"replicas that nobody has", single(server.Options{JetStream: true}), StreamOptions{Replicas: 7}, []string{"7 replicas", "1 to 5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			js := tt.bus(t)
			err := EnsureStreams(t.Context(), js, tt.o)
			for _, word := range tt.want {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("says %v, not %q", err, word)
				}
			}
			if own, err := OwnStreams(t.Context(), js); err == nil && len(own) > 0 {
				t.Errorf("%d streams were made all the same", len(own))
			}
		})
	}
	old := &jetstream.AccountInfo{}
	old.API.Level = 1
	if err := capable(old, "2.11.4"); err == nil || !strings.Contains(err.Error(), "2.11.4") || !strings.Contains(err.Error(), "2.12") {
		t.Errorf("a server of before atomic publish: %v", err)
	}
}

func TestAccountLimits(t *testing.T) {
	account := server.NewAccount("gputap")
	limits := map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: 64 << 20, MaxStore: 100 << 20, MaxStreams: -1, MaxConsumers: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}}
	options := server.Options{
		JetStream: true, Accounts: []*server.Account{account},
		Users: []*server.User{{Username: "u", Password: "p", Account: account}},
	}
	s := run(t, &options)
	used, err := s.LookupAccount("gputap")
	if err != nil {
		t.Fatal(err)
	}
	if err := used.EnableJetStream(limits, nil); err != nil {
		t.Fatal(err)
	}
	js := dial(t, strings.Replace(s.ClientURL(), "nats://", "nats://u:p@", 1))
	_, err = PlanStreams(t.Context(), js, StreamOptions{MaxBytes: 1 << 30})
	if err == nil || !strings.Contains(err.Error(), "100.0 MiB left of 100.0 MiB") || !strings.Contains(err.Error(), "limits of the account") {
		t.Errorf("says %v", err)
	}
	if err := EnsureStreams(t.Context(), js, StreamOptions{MaxBytes: 32 << 20}); err != nil {
		t.Error(err)
	}
}

func TestHostileTopology(t *testing.T) {
	js := connectReady(t)
	kv, err := js.KeyValue(t.Context(), schema.MetaBucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "null", "\xff", `{"generation":-1}`, `{"generation":1,"first":0,"shards":70000}`} {
		if _, err := kv.Put(t.Context(), schema.TopologyKey, []byte(value)); err != nil {
			t.Fatal(err)
		}
		if err := EnsureStreams(t.Context(), js, StreamOptions{}); err == nil || !strings.Contains(err.Error(), schema.MetaBucket) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if _, err := RemoveStreams(t.Context(), js); err != nil {
		t.Error(err)
	}
	reshard(t, js, 2)
}

// TestStatesOfARemovedGeneration: they go with it, those of every fold, and no other shard's.
func TestStatesOfARemovedGeneration(t *testing.T) {
	f := newFleet(t, 2)
	reshard(t, f.admin, 20)
	left := map[string]bool{}
	for _, fold := range []string{"chain", "other"} {
		for shard := range 22 {
			store := &checkpoints{js: f.admin, fold: fold, shard: shard}
			m, err := store.claim(t.Context(), "one", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.commit(t.Context(), &m, m, []byte("state")); err != nil {
				t.Fatal(err)
			}
			if shard >= 2 {
				left[store.subject("m")], left[store.partSubject(&m, 0)] = true, true
			}
		}
	}
	if _, err := RemoveGeneration(t.Context(), f.admin, 1); err != nil {
		t.Fatal(err)
	}
	states, err := f.admin.Stream(t.Context(), schema.StateStream)
	if err != nil {
		t.Fatal(err)
	}
	now, err := states.Info(t.Context(), jetstream.WithSubjectFilter(schema.StateSubjects))
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(now.State.Subjects, left, func(messages uint64, _ bool) bool { return messages == 1 }) {
		t.Errorf("left are %v, want %v", now.State.Subjects, left)
	}
}

func TestRemove(t *testing.T) {
	js := connectReady(t)
	publishMemory(t, js, 1)
	reshard(t, js, 2)
	topology := reshard(t, js, 3)
	if _, err := RemoveGeneration(t.Context(), js, 3); err == nil {
		t.Error("the present generation is removed")
	}
	if _, err := RemoveGeneration(t.Context(), js, 9); err == nil {
		t.Error("a generation that is none is removed")
	}
	// As if a call before had been broken off.
	if err := removeStream(t.Context(), js, schema.StreamName(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveGeneration(t.Context(), js, 2); err != nil {
		t.Fatal(err)
	}
	if got := topologyOf(t, js); !got.Equal(topology.Without(2)) {
		t.Errorf("topology %+v", got)
	}
	own, err := OwnStreams(t.Context(), js)
	if err != nil || own[schema.StreamName(2)] != nil || own[schema.StreamName(0)] == nil || own[schema.StreamName(5)] == nil {
		t.Errorf("streams %v, %v", own, err)
	}
	nothingLeftToDo(t, js)
	if got := reshard(t, js, 2); got.First != 6 || got.Generation != 4 {
		t.Errorf("a number is used again: %+v", got)
	}
	removed, err := RemoveStreams(t.Context(), js)
	if err != nil || removed[0] != schema.StateStream || removed[len(removed)-1] != schema.BucketStream(schema.MetaBucket) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if own, err = OwnStreams(t.Context(), js); err != nil || len(own) > 0 {
		t.Errorf("left: %v, %v", own, err)
	}
	if removed, err = RemoveStreams(t.Context(), js); err != nil || len(removed) > 0 {
		t.Errorf("removed again: %v, %v", removed, err)
	}
}

func TestAShardThatIsNone(t *testing.T) {
	b := newBus(t)
	js := b.connect()
	c := NewReader(ReaderOptions{Shard: 7}, js, &recorder{}, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }() // waits: nobody has set the bus up
	reshard(t, js, 2)
	err := <-ended
	if err == nil || !strings.Contains(err.Error(), "no shard 7: generation 1 has 2 shards, from 0 to 1") {
		t.Errorf("says %v", err)
	}
}

// TestTooFewBytes: an amount that a unit was forgotten of is refused, and what a smaller one lets go is said.
func TestTooFewBytes(t *testing.T) {
	js := connectReady(t)
	if _, err := PlanStreams(t.Context(), js, StreamOptions{Shards: 20, MaxBytes: 400}); err == nil || !strings.Contains(err.Error(), "400 bytes of events in 20 shards: use --max-bytes 20MiB or more") {
		t.Errorf("says %v", err)
	}
	big := builderOf(t, 60_000)
	for seq := range uint64(24) {
		publish(t, js, schema.KindMemory, big(seq+1))
	}
	held := info(t, js, schema.StreamName(0)).State.Bytes
	if held <= 16<<20 {
		t.Fatalf("only %d bytes are held", held)
	}
	plan, err := PlanStreams(t.Context(), js, StreamOptions{MaxBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the oldest %s of %s go", about(int64(held)-16<<20), about(int64(held)))
	if !slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Name == schema.StreamName(0) && strings.Contains(s.Detail, want) }) {
		t.Errorf("plans %+v, want %q", plan.Steps, want)
	}
}

// builderOf gives batches of as many events.
func builderOf(t *testing.T, events int) func(seq uint64) []byte {
	t.Helper()
	b := schema.NewBuilder(schema.KindMemory)
	fill(b, events)
	return func(seq uint64) []byte {
		return b.Encode(&schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: seq})
	}
}

// TestTwoOfOneMind: of two that ask for the same at once, the later one does not take limits from what the other has half changed.
func TestTwoOfOneMind(t *testing.T) {
	js := newBus(t).connect()
	if err := EnsureStreams(t.Context(), js, StreamOptions{Shards: 2, MaxAge: 5 * time.Hour, MaxBytes: 100 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(t.Context(), &overtaken{JetStream: js, t: t}, StreamOptions{Shards: 4}); err != nil {
		t.Fatal(err)
	}
	topology := topologyOf(t, js)
	for _, shard := range topology.Numbers() {
		if c := info(t, js, schema.StreamName(shard)).Config; topology.Shards != 4 || c.MaxAge != 5*time.Hour || c.MaxBytes != 25<<20 {
			t.Errorf("%+v: %s keeps %d bytes for %s", topology, c.Name, c.MaxBytes, c.MaxAge)
		}
	}
}

// overtaken is a bus on which somebody else sets up four shards just after the streams were listed.
type overtaken struct {
	jetstream.JetStream
	t            *testing.T
	listed, done bool
}

func (o *overtaken) ListStreams(ctx context.Context, opts ...jetstream.StreamListOpt) jetstream.StreamInfoLister {
	o.listed = true
	return o.JetStream.ListStreams(ctx, opts...)
}

func (o *overtaken) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	if o.listed && !o.done {
		o.done = true
		reshard(o.t, o.JetStream, 4)
	}
	return o.JetStream.KeyValue(ctx, bucket)
}

// TestWorthRetrying: what a server takes back by itself is tried again, and nothing else.
func TestWorthRetrying(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{io.EOF, 0},
		{&jetstream.APIError{ErrorCode: codeNoPeers, Description: "no suitable peers for placement, peer offline"}, 5},
		{fmt.Errorf("create: %w", &jetstream.APIError{ErrorCode: codeNoPeers, Description: "no suitable peers for placement, peer offline, insufficient storage"}), 5},
		{&jetstream.APIError{ErrorCode: codeNoPeers, Description: "no suitable peers for placement, insufficient storage"}, 0},
		{&jetstream.APIError{ErrorCode: codeNoStore, Description: "error creating store for stream"}, 1},
		{&jetstream.APIError{ErrorCode: codeNoStorage, Description: "insufficient storage resources available"}, 0},
	} {
		if got := worthRetrying(tt.err); got != tt.want {
			t.Errorf("%v: %d retries, want %d", tt.err, got, tt.want)
		}
	}
}

// TestACluster: three servers hold three replicas, and not five.
func TestACluster(t *testing.T) {
	js := cluster(t, 3)
	o := StreamOptions{Shards: 2, Replicas: 3, MaxBytes: 64 << 20}
	if err := EnsureStreams(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	own, err := OwnStreams(t.Context(), js)
	if err != nil || len(own) != 7 {
		t.Fatalf("%d streams, %v", len(own), err)
	}
	for name, s := range own {
		if s.Config.Replicas != 3 || s.Cluster == nil || len(s.Cluster.Replicas) != 2 {
			t.Errorf("%s: %d replicas, %+v", name, s.Config.Replicas, s.Cluster)
		}
	}
	err = EnsureStreams(t.Context(), js, StreamOptions{Replicas: 5})
	if err == nil || !strings.Contains(err.Error(), "fewer than 5 servers") {
		t.Errorf("five replicas on three servers: %v", err)
	}
	publishMemory(t, js, 1)
	topology := reshard(t, js, 3)
	if topology.Generation != 2 || info(t, js, schema.StreamName(2)).Config.Replicas != 3 || !info(t, js, schema.StreamName(0)).Config.Sealed {
		t.Errorf("resharded to %+v", topology)
	}
	if got := info(t, js, schema.StreamName(0)).State.Msgs; got != 1 {
		t.Errorf("%d messages in the closed shard", got)
	}
}

func serve(t *testing.T, o server.Options) jetstream.JetStream {
	t.Helper()
	return dial(t, run(t, &o).ClientURL())
}

func dial(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
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

func run(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	s := launch(t, o)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	return s
}

func launch(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", -1, t.TempDir(), true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// cluster is a client of a cluster that has its leader.
func cluster(t *testing.T, servers int) jetstream.JetStream {
	t.Helper()
	ports, routes := freePorts(t, servers)
	var all []*server.Server
	for i, port := range ports {
		o := server.Options{ServerName: fmt.Sprint("s", i), JetStream: true, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 64 << 20}
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}
		o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		all = append(all, launch(t, &o))
	}
	for _, s := range all {
		if !s.ReadyForConnections(30 * time.Second) {
			t.Fatal("nats-server does not start")
		}
	}
	js := dial(t, all[0].ClientURL())
	eventually(t, "the cluster places a stream on all servers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "READY", Replicas: servers})
		return err == nil
	})
	return js
}

func freePorts(t *testing.T, n int) (ports []int, routes []string) {
	t.Helper()
	for len(ports) < n {
		// Not one that Linux gives to connections: a server that tries to reach another too early would be given its port.
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer l.Close() // when all are taken: none is given twice
		ports, routes = append(ports, l.Addr().(*net.TCPAddr).Port), append(routes, "nats://"+l.Addr().String())
	}
	return ports, routes
}
