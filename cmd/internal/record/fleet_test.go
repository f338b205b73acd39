package record

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		recordForEver(url)
	}
	os.Exit(bustest.Main(m))
}

// fleet publishes batches of several hosts, and remembers them.
type fleet struct {
	t         testing.TB
	js        jetstream.JetStream
	topology  schema.Topology
	rng       *rand.Rand
	hosts     []*consumertest.Host
	beats     *schema.Builder
	published []published
	now       schema.KTime
	jobs      map[string]string // of the process on each host
}

// published is one stored message and how it changes the live bytes of its host.
type published struct {
	recording.Message
	host  string
	delta int64
}

const clusterName = "test" // of consumertest

func newFleet(t testing.TB, js jetstream.JetStream, shards int) *fleet {
	t.Helper()
	f := &fleet{t: t, js: js, rng: rand.New(rand.NewPCG(3, 4)), beats: schema.NewBuilder(schema.KindHost), now: 1e9}
	f.shard(shards)
	for i := range 5 {
		f.hosts = append(f.hosts, consumertest.Memory(t, fmt.Sprint("gpu-", i)))
	}
	return f
}

// shard sets the number of shards.
func (f *fleet) shard(shards int) {
	f.t.Helper()
	check(f.t, bus.EnsureStreams(f.t.Context(), f.js, bus.StreamOptions{Shards: shards}))
	var err error
	f.topology, err = bus.ReadTopology(f.t.Context(), f.js)
	check(f.t, err)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// publish publishes so many messages: allocations and frees, and heartbeats.
func (f *fleet) publish(n int) {
	f.t.Helper()
	for range n {
		h := f.hosts[f.rng.IntN(len(f.hosts))]
		if f.rng.IntN(5) == 0 {
			header := h.Header
			header.Seq = uint64(len(f.published) + 1) // grows, with holes that no fold looks at
			f.store(h, schema.KindHost, bytes.Clone(f.beats.Encode(&header)), 0)
			continue
		}
		p, delta := h.Process(7, 1, "train"), int64(0)
		p.Job = f.jobs[h.Header.Host]
		for range 1 + f.rng.IntN(4) {
			f.now += 1000
			ptr, amount := uint64(f.now)<<16, 1+f.rng.Int64N(1<<20)
			p.Alloc(7, ptr, uint64(amount), f.now, 1)
			delta += amount
			if f.rng.IntN(2) == 0 {
				f.now += 1000
				p.Free(7, ptr, f.now, 1)
				delta -= amount
			}
		}
		f.store(h, schema.KindMemory, h.Message(), delta)
	}
}

func (f *fleet) store(h *consumertest.Host, kind schema.Kind, data []byte, delta int64) {
	f.t.Helper()
	shard := f.topology.Shard(h.Header.Cluster, h.Header.Host)
	subject := schema.Subject(shard, h.Header.Cluster, h.Header.Host, kind)
	m := recording.Message{Shard: shard, Subject: subject, Data: data}
	ack, err := f.js.Publish(f.t.Context(), m.Subject, data)
	check(f.t, err)
	stream, err := f.js.Stream(f.t.Context(), schema.StreamName(shard))
	check(f.t, err)
	raw, err := stream.GetMsg(f.t.Context(), ack.Sequence)
	check(f.t, err)
	m.Sequence, m.Stored = ack.Sequence, raw.Time.UTC()
	f.published = append(f.published, published{m, h.Header.Host, delta})
}

// live returns the live bytes of each host after the first n messages.
func (f *fleet) live(n int) map[string]int64 {
	live := map[string]int64{}
	for _, p := range f.published[:n] {
		live[p.host] += p.delta
	}
	maps.DeleteFunc(live, func(_ string, n int64) bool { return n == 0 })
	return live
}

// messages returns published messages that are accepted, by shard and sequence.
func (f *fleet) messages(accept func(i int, m *published) bool) (all []recording.Message) {
	for i := range f.published {
		if accept(i, &f.published[i]) {
			all = append(all, f.published[i].Message)
		}
	}
	return sorted(all)
}

func sorted(all []recording.Message) []recording.Message {
	slices.SortStableFunc(all, func(a, b recording.Message) int {
		if a.Shard != b.Shard {
			return a.Shard - b.Shard
		}
		return int(a.Sequence) - int(b.Sequence)
	})
	return all
}

func (f *fleet) options(path string) Options {
	return Options{JetStream: f.js, Path: path, Log: slog.New(slog.DiscardHandler)}
}

// recordAll records all messages that are stored now.
func (f *fleet) recordAll(o Options) Stats {
	f.t.Helper()
	r := New(o)
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	go func() {
		<-r.Ready()
		cancel()
	}()
	check(f.t, r.Run(ctx))
	return r.Stats()
}

// file is the contents of a recording.
type file struct {
	messages []recording.Message      // in the order of the file
	live     map[string]int64         // of the state at its beginning
	liveIn   map[int]map[string]int64 // the same by shard
	end      map[string]int64         // after its last message
	streams  []recording.Stream
	sections []recording.Section
	evidence []string // of each process, at the end
}

func readFile(t testing.TB, path string) (f file) {
	t.Helper()
	r, err := recording.Open(path)
	check(t, err)
	defer r.Close()
	_, f.streams, err = r.Streams()
	check(t, err)
	trackers, replays := map[int]tracker{}, map[int]*consumer.Replay{}
	for _, s := range f.streams {
		trackers[s.Shard] = newTracker()
		replays[s.Shard] = consumer.NewReplay(s.Shard, trackers[s.Shard], s.State == recording.KnowledgeComplete,
			slog.New(slog.DiscardHandler))
	}
	for s, err := range r.State() {
		check(t, err)
		check(t, replays[s.Shard].Restore(s))
		f.sections = append(f.sections, s)
	}
	f.live, f.liveIn = liveOf(trackers), map[int]map[string]int64{}
	for number, of := range trackers {
		f.liveIn[number] = liveOf(map[int]tracker{number: of})
	}
	for m, err := range r.Messages(recording.Filter{}) {
		check(t, err)
		m.Data = bytes.Clone(m.Data)
		f.messages = append(f.messages, m)
		replays[m.Shard].Apply(&m)
	}
	f.end = liveOf(trackers)
	for _, tracker := range trackers {
		for _, p := range tracker.Report().Processes {
			f.evidence = append(f.evidence, p.Evidence)
		}
	}
	return f
}

func liveOf(trackers map[int]tracker) map[string]int64 {
	live := map[string]int64{}
	for _, tracker := range trackers {
		for _, p := range tracker.Report().Processes {
			live[p.ID.Host] += int64(p.LiveBytes)
		}
	}
	maps.DeleteFunc(live, func(_ string, n int64) bool { return n == 0 })
	return live
}

// expect compares messages regardless of the order of shards.
func expect(t testing.TB, got, want []recording.Message) {
	t.Helper()
	last := map[int]uint64{}
	for _, m := range got {
		if m.Sequence <= last[m.Shard] {
			t.Errorf("message %d of shard %d comes after message %d", m.Sequence, m.Shard, last[m.Shard])
		}
		last[m.Shard] = m.Sequence
	}
	if !slices.EqualFunc(sorted(slices.Clone(got)), want, func(a, b recording.Message) bool {
		return a.Shard == b.Shard && a.Sequence == b.Sequence && a.Stored.Equal(b.Stored) && a.Subject == b.Subject &&
			bytes.Equal(a.Data, b.Data)
	}) {
		t.Errorf("%d messages are recorded, and %d were published, or they differ", len(got), len(want))
	}
}

func expectLive(t testing.TB, when string, got, want map[string]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: live bytes %v, want %v", when, got, want)
	}
}

const (
	childURL  = "RECORD_TEST_URL"
	childPath = "RECORD_TEST_PATH"
)

// recordForEver records until it is killed.
func recordForEver(url string) {
	nc, err := nats.Connect(url)
	if err != nil {
		panic(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		panic(err)
	}
	o := Options{JetStream: js, Path: os.Getenv(childPath), Log: slog.New(slog.DiscardHandler)}
	panic(New(o).Run(context.Background()))
}

func tempPath(t testing.TB) string { return filepath.Join(t.TempDir(), "run.gtr") }
