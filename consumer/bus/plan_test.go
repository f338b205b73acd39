package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestEnsureStreamsCreatesAllOnce(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	if _, err := ReadTopology(t.Context(), js); !errors.Is(err, ErrNoTopology) {
		t.Errorf("a bare bus gives %v", err)
	}
	if err := EnsureStreams(t.Context(), js,
		StreamOptions{Shards: 3, MaxAge: 2 * time.Hour, MaxBytes: 300 << 20}); err != nil {
		t.Fatal(err)
	}
	want := schema.Topology{Generation: 1, Shards: 3}
	if got := topologyOf(t, js); !got.Equal(want) {
		t.Errorf("topology %+v", got)
	}
	expectNothingToDo(t, js)
	ev, state := info(t, js, schema.StreamName(2)).Config, info(t, js, schema.StateStream).Config
	if ev.MaxBytes != 100<<20 || ev.MaxAge != 2*time.Hour || ev.Subjects[0] != "gputap.v1.ev.2.>" || !ev.DenyDelete {
		t.Errorf("shard 2: %+v", ev)
	}
	if state.MaxBytes != 75<<20 || state.MaxMsgsPerSubject != 1 || !state.AllowAtomicPublish ||
		state.Discard != jetstream.DiscardNew ||
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

	// Other settings stay, also in the next generation.
	topology := reshard(t, js, 6)
	if c := info(t, js, schema.StreamName(3)).Config; c.MaxBytes != 50<<20 || c.MaxAge != 2*time.Hour ||
		topology.First != 3 {
		t.Errorf("shard 3 of %+v: %+v", topology, c)
	}
	expectNothingToDo(t, js)
}

func TestClosedGenerationIsReadOnly(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	publish(t, js, schema.KindMemory, 3)
	topology := reshard(t, js, 4)
	if want := (schema.Topology{Generation: 1, Shards: 1}).Next(4); !topology.Equal(want) {
		t.Errorf("topology %+v, want %+v", topology, want)
	}
	if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", schema.KindMemory), []byte("batch")); err == nil {
		t.Error("a closed shard takes a batch")
	}
	closed := info(t, js, schema.StreamName(0))
	if !closed.Config.Sealed || closed.State.Msgs != 3 || closed.Config.MaxBytes > slack+1<<20 {
		t.Errorf("the closed shard: sealed %t, %d messages, %d bytes reserved", closed.Config.Sealed, closed.State.Msgs,
			closed.Config.MaxBytes)
	}
	for sequence := range uint64(3) {
		if _, err := stream(t, js, schema.StreamName(0)).GetMsg(t.Context(), sequence+1); err != nil {
			t.Errorf("message %d cannot be read: %v", sequence+1, err)
		}
	}
	if _, err := js.Publish(t.Context(), schema.Subject(1, "c", "h", schema.KindMemory), []byte("batch")); err != nil {
		t.Error(err)
	}
}

// Of callers with different numbers of shards one wins. Callers with the same number all succeed.
func TestRacingPlansOneWins(t *testing.T) {
	t.Parallel()
	b := bustest.NewAccount(t)
	js := b.Connect()
	for round, wanted := range [][]int{{2, 3}, {5, 5, 5}, {1, 4, 2, 7}} {
		clients, errs := make([]jetstream.JetStream, len(wanted)), make([]error, len(wanted))
		plans := make([]*Plan, len(wanted))
		for i, shards := range wanted {
			clients[i] = b.Connect()
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
		expectNothingToDo(t, js)
	}
}

// TestInterruptedPlanIsCompleted: after any step producers can publish where the topology says, and another plan
// completes the change.
func TestInterruptedPlanIsCompleted(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
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
		if _, err := js.Publish(t.Context(), subject, []byte("batch")); err != nil {
			t.Errorf("after %d steps of %d, from %+v: %v", shards-2, len(plan.Steps), before, err)
		}
		if got := reshard(t, js, shards); got.Shards != shards {
			t.Errorf("%d shards, want %d", got.Shards, shards)
		}
		expectNothingToDo(t, js)
		for _, g := range topologyOf(t, js).Previous {
			if _, err := RemoveGeneration(t.Context(), js, g.Generation, unused); err != nil {
				t.Fatal(err)
			}
		}
		if shards == 20 {
			break
		}
	}
}

func TestImpossiblePlansAreRefused(t *testing.T) {
	t.Parallel()
	single := func(o server.Options) func(*testing.T) jetstream.JetStream {
		return func(t *testing.T) jetstream.JetStream { return bustest.Dial(t, bustest.Run(t, &o).ClientURL()) }
	}
	tests := []struct {
		name string
		bus  func(*testing.T) jetstream.JetStream
		o    StreamOptions
		want []string
	}{
		{"no JetStream", single(server.Options{}), StreamOptions{}, []string{"no JetStream", "jetstream block"}},
		{"replicas on one server", single(server.Options{JetStream: true}), StreamOptions{Replicas: 3},
			[]string{"3 replicas", "--replicas 1"}},
		{"storage", single(server.Options{JetStream: true, JetStreamMaxStore: 1 << 30}),
			StreamOptions{Shards: 16, MaxBytes: 4 << 30},
			[]string{"insufficient storage", "reserves 5.3 GiB", "max_file_store", "--max-bytes"}},
		{"too many shards", single(server.Options{JetStream: true}), StreamOptions{Shards: 2000},
			[]string{"2000 shards", "1 to 1024"}},
		{"replicas that nobody has", single(server.Options{JetStream: true}), StreamOptions{Replicas: 7},
			[]string{"7 replicas", "1 to 5"}},
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
			if _, err := ReadTopology(t.Context(), js); err == nil {
				t.Error("producers may publish although the streams do not fit")
			}
		})
	}
	old := &jetstream.AccountInfo{}
	old.API.Level = 1
	if err := checkVersion(old, "2.11.4"); err == nil || !strings.Contains(err.Error(), "2.11.4") ||
		!strings.Contains(err.Error(), "2.12") {
		t.Errorf("a server of before atomic publish: %v", err)
	}
}

func TestAccountLimits(t *testing.T) {
	t.Parallel()
	account := server.NewAccount("gputap")
	limits := map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: 64 << 20, MaxStore: 100 << 20, MaxStreams: -1, MaxConsumers: -1, MemoryMaxStreamBytes: -1,
		StoreMaxStreamBytes: -1,
	}}
	options := server.Options{
		JetStream: true, Accounts: []*server.Account{account},
		Users: []*server.User{{Username: "u", Password: "p", Account: account}},
	}
	s := bustest.Run(t, &options)
	used, err := s.LookupAccount("gputap")
	if err != nil {
		t.Fatal(err)
	}
	if err := used.EnableJetStream(limits, nil); err != nil {
		t.Fatal(err)
	}
	js := bustest.Dial(t, strings.Replace(s.ClientURL(), "nats://", "nats://u:p@", 1))
	_, err = PlanStreams(t.Context(), js, StreamOptions{MaxBytes: 1 << 30})
	if err == nil || !strings.Contains(err.Error(), "100.0 MiB left of 100.0 MiB") ||
		!strings.Contains(err.Error(), "limits of the account") {
		t.Errorf("says %v", err)
	}
	if err := EnsureStreams(t.Context(), js, StreamOptions{MaxBytes: 32 << 20}); err != nil {
		t.Error(err)
	}
}

func TestInvalidTopologyIsRefused(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	kv, err := js.KeyValue(t.Context(), schema.MetaBucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "null", "\xff", `{"generation":-1}`,
		`{"generation":1,"first":0,"shards":70000}`} {
		if _, err := kv.Put(t.Context(), schema.TopologyKey, []byte(value)); err != nil {
			t.Fatal(err)
		}
		if err := EnsureStreams(t.Context(), js, StreamOptions{}); err == nil ||
			!strings.Contains(err.Error(), schema.MetaBucket) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if _, err := RemoveStreams(t.Context(), js); err != nil {
		t.Error(err)
	}
	reshard(t, js, 2)
}

// unused says that no fold needs a generation.
func unused(_, _ *schema.Topology) error { return nil }

func TestRemove(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	publish(t, js, schema.KindMemory, 1)
	reshard(t, js, 2)
	topology := reshard(t, js, 3)
	if _, err := RemoveGeneration(t.Context(), js, 3, unused); err == nil {
		t.Error("the present generation is removed")
	}
	if _, err := RemoveGeneration(t.Context(), js, 9, unused); err == nil {
		t.Error("a generation that is none is removed")
	}
	// As if a call before had been broken off.
	if err := removeStream(t.Context(), js, schema.StreamName(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveGeneration(t.Context(), js, 2, unused); err != nil {
		t.Fatal(err)
	}
	if got := topologyOf(t, js); !got.Equal(topology.Without(2)) {
		t.Errorf("topology %+v", got)
	}
	own, err := OwnStreams(t.Context(), js)
	if err != nil || own[schema.StreamName(2)] != nil || own[schema.StreamName(0)] == nil ||
		own[schema.StreamName(5)] == nil {
		t.Errorf("streams %v, %v", own, err)
	}
	expectNothingToDo(t, js)
	if got := reshard(t, js, 2); got.First != 6 || got.Generation != 4 {
		t.Errorf("a number is used again: %+v", got)
	}
	removed, err := RemoveStreams(t.Context(), js)
	if err != nil || removed[0] != schema.StateStream ||
		removed[len(removed)-1] != schema.BucketStream(schema.MetaBucket) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if own, err = OwnStreams(t.Context(), js); err != nil || len(own) > 0 {
		t.Errorf("left: %v, %v", own, err)
	}
	if removed, err = RemoveStreams(t.Context(), js); err != nil || len(removed) > 0 {
		t.Errorf("removed again: %v, %v", removed, err)
	}
}

// TestByteLimitIsChecked: an amount without its unit is refused, and the plan says how much a smaller limit evicts.
func TestByteLimitIsChecked(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	if _, err := PlanStreams(t.Context(), js, StreamOptions{Shards: 20, MaxBytes: 400}); err == nil ||
		!strings.Contains(err.Error(), "400 bytes of events in 20 shards: use --max-bytes 20MiB or more") {
		t.Errorf("says %v", err)
	}
	noise := make([]byte, 1<<20-1024) // that S2 cannot compress
	for range 18 {
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", schema.KindMemory), noise); err != nil {
			t.Fatal(err)
		}
	}
	held := info(t, js, schema.StreamName(0)).State.Bytes
	if held <= 16<<20 {
		t.Fatalf("only %d bytes are held", held)
	}
	plan, err := PlanStreams(t.Context(), js, StreamOptions{MaxBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("evicts the oldest %s of %s", rounded(int64(held)-16<<20), rounded(int64(held)))
	if !slices.ContainsFunc(plan.Steps,
		func(s Step) bool { return s.Name == schema.StreamName(0) && strings.Contains(s.Detail, want) }) {
		t.Errorf("plans %+v, want %q", plan.Steps, want)
	}
}

// TestRacingPlansKeepLimits: the later of two equal calls does not take its limits from the half-made changes of
// the other.
func TestRacingPlansKeepLimits(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	if err := EnsureStreams(t.Context(), js,
		StreamOptions{Shards: 2, MaxAge: 5 * time.Hour, MaxBytes: 100 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := EnsureStreams(t.Context(), &overtaken{JetStream: js, t: t}, StreamOptions{Shards: 4}); err != nil {
		t.Fatal(err)
	}
	topology := topologyOf(t, js)
	for _, shard := range topology.Numbers() {
		if c := info(t, js, schema.StreamName(shard)).Config; topology.Shards != 4 || c.MaxAge != 5*time.Hour ||
			c.MaxBytes != 25<<20 {
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

// TestRetriesOf: only temporary refusals are retried.
func TestRetriesOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{io.EOF, 0},
		{&jetstream.APIError{ErrorCode: codeNoPeers, Description: "no suitable peers for placement, peer offline"}, 5},
		{fmt.Errorf("create: %w", &jetstream.APIError{ErrorCode: codeNoPeers,
			Description: "no suitable peers for placement, peer offline, insufficient storage"}), 5},
		{&jetstream.APIError{ErrorCode: codeNoPeers,
			Description: "no suitable peers for placement, insufficient storage"}, 0},
		{&jetstream.APIError{ErrorCode: codeNoStore, Description: "error creating store for stream"}, 1},
		{&jetstream.APIError{ErrorCode: codeNoStorage, Description: "insufficient storage resources available"}, 0},
	} {
		if got := retriesOf(tt.err); got != tt.want {
			t.Errorf("%v: %d retries, want %d", tt.err, got, tt.want)
		}
	}
}
