package consumer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestReaderOptionsSetTheStart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		opts  func(second time.Time) ReaderOptions
		purge uint64 // messages that retention takes before the consumer begins
		want  []uint64
		stats Stats
	}{
		{"all", func(time.Time) ReaderOptions { return ReaderOptions{} }, 0, []uint64{1, 2, 3, 4}, Stats{Batches: 4}},
		{"new", func(time.Time) ReaderOptions { return ReaderOptions{New: true} }, 0, []uint64{4},
			Stats{Batches: 1, LateStart: 3}},
		{"time", func(at time.Time) ReaderOptions { return ReaderOptions{Since: at} }, 0, []uint64{2, 3, 4},
			Stats{Batches: 3, LateStart: 1}},
		{"all that is left", func(time.Time) ReaderOptions { return ReaderOptions{} }, 2, []uint64{3, 4},
			Stats{Batches: 2, Retention: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			js := bustest.Connect(t)
			ensureStreamForTest(t, js)
			publishMemory(t, js, 1, 2, 3)
			s, err := js.Stream(t.Context(), schema.StreamName(0))
			if err != nil {
				t.Fatal(err)
			}
			second, err := s.GetMsg(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			if tt.purge > 0 {
				if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(tt.purge+1)); err != nil {
					t.Fatal(err)
				}
			}
			fold := &recorder{}
			c, _ := start(t, js, fold, tt.opts(second.Time))
			<-c.Ready()
			wait(t, c, publishMemory(t, js, 4))
			expect(t, fold, tt.want...)
			got := c.Stats()
			got.LastEvent, got.Events, got.Lag = time.Time{}, tt.stats.Events, 0
			if got != tt.stats {
				t.Errorf("stats\n%+v, want\n%+v", got, tt.stats)
			}
		})
	}
}

func TestServerRestartLosesNothing(t *testing.T) {
	t.Parallel()
	b := bustest.NewServer(t, "")
	js := b.Connect()
	ensure(t, js)
	fold := &recorder{}
	c, _ := start(t, js, fold, ReaderOptions{})
	const batches = 300
	var last uint64
	for seq := uint64(1); seq <= batches; seq++ {
		if seq == 100 || seq == 200 {
			b.Stop()
			b.Start()
		}
		last = publishUntilAcked(t, js, seq)
	}
	wait(t, c, last)
	expect(t, fold, upTo(batches)...)
	if s := c.Stats(); s.Missing != 0 || fold.toldLost() != 0 {
		t.Errorf("%d batches are called missing", s.Missing)
	}
}

// publishUntilAcked retries as a producer does; a batch may be stored twice.
func publishUntilAcked(t testing.TB, js jetstream.JetStream, seq uint64) uint64 {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		ack, err := js.Publish(ctx, schema.Subject(0, "c", "h", schema.KindMemory), memory(seq))
		cancel()
		if err == nil {
			return ack.Sequence
		}
		runtime.Gosched()
	}
	return 0
}

func TestRecreatedStreamIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	fold := &recorder{until: make(chan struct{}), last: 7}
	c, _ := start(t, js, fold, ReaderOptions{})
	wait(t, c, publishMemory(t, js, 1, 2, 3, 4, 5))
	if err := js.DeleteStream(t.Context(), schema.StreamName(0)); err != nil {
		t.Fatal(err)
	}
	ensure(t, js)
	publishMemory(t, js, 5, 6, 7) // 5 was not acked when the stream went
	select {
	case <-fold.until:
	case <-time.After(time.Minute):
	}
	expect(t, fold, upTo(7)...)
	if s := c.Stats(); s.Missing != 0 || s.Duplicates != 1 {
		t.Errorf("%d missing and %d duplicates, want 0 and 1", s.Missing, s.Duplicates)
	}
}

// TestLostEndOfStreamIsReadAgain: a power failure takes messages that were stored and not synced, and their
// sequences are used again for other batches.
func TestLostEndOfStreamIsReadAgain(t *testing.T) {
	t.Parallel()
	b := bustest.NewServer(t, "")
	js := b.Connect()
	ensure(t, js)
	fold := &recorder{until: make(chan struct{}), last: 8}
	c, _ := start(t, js, fold, ReaderOptions{})
	wait(t, c, publishMemory(t, js, 1, 2, 3))
	b.Stop()
	synced := filepath.Join(t.TempDir(), "synced")
	if err := os.CopyFS(synced, os.DirFS(b.Dir)); err != nil {
		t.Fatal(err)
	}
	b.Start()
	publishUntilAcked(t, js, 4)
	wait(t, c, publishMemory(t, js, 5))
	b.Stop()

	elsewhere := bustest.NewServer(t, synced) // where the consumer does not see it being written
	publishMemory(t, elsewhere.Connect(), 6, 7, 8)
	elsewhere.Stop()
	b.Dir = synced
	b.Start()
	select {
	case <-fold.until:
	case <-time.After(time.Minute):
	}
	expect(t, fold, upTo(8)...)
	if s := c.Stats(); s.Missing != 0 || s.Duplicates != 3 {
		t.Errorf("%d missing and %d duplicates, want 0 and 3", s.Missing, s.Duplicates)
	}
}

func TestReaderWaitsForTheStream(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	fold := &recorder{}
	c, _ := start(t, js, fold, ReaderOptions{})
	ensure(t, js)
	wait(t, c, publishMemory(t, js, 1))
	expect(t, fold, 1)
}

func TestReadersAreIndependent(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	one, two := &recorder{}, &recorder{}
	c1, _ := start(t, js, one, ReaderOptions{})
	c2, _ := start(t, js, two, ReaderOptions{})
	last := publishMemory(t, js, upTo(200)...)
	wait(t, c1, last)
	wait(t, c2, last)
	expect(t, one, upTo(200)...)
	expect(t, two, upTo(200)...)
}

func TestStopAppliesFetchedMessages(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	fold := &recorder{hold: make(chan struct{})}
	c, stop := start(t, js, fold, ReaderOptions{})
	publishMemory(t, js, upTo(50)...)
	fold.hold <- struct{}{}
	until(t, js, func(i *jetstream.ConsumerInfo) bool { return i.Delivered.Stream == 50 && i.NumWaiting > 0 })
	if err := js.Conn().Flush(); err != nil { // all messages have arrived
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	until(t, js, func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting == 0 })
	close(fold.hold)
	<-stopped
	got := c.Applied()
	if got < 49 { // NATS calls a subscription drained when the last message is on its way
		t.Errorf("stands at %d", got)
	}
	expect(t, fold, upTo(got)...)
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d JetStream consumers are left behind", n)
	}
}

// TestConsumerNamesAreUnique: a JetStream consumer of the same name could still exist, at another sequence.
func TestConsumerNamesAreUnique(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	created := make(chan string, 100)
	if _, err := js.Conn().Subscribe("$JS.API.CONSUMER.CREATE.>",
		func(m *nats.Msg) { created <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	fold := &recorder{}
	c, _ := start(t, js, fold, ReaderOptions{})
	seen := map[string]bool{}
	for seq := range uint64(4) {
		wait(t, c, publishMemory(t, js, seq+1))
		subject := <-created
		if seen[subject] {
			t.Errorf("%s is created again", subject)
		}
		seen[subject] = true
		name := subject[strings.LastIndexByte(subject, '.')+1:]
		if err := js.DeleteConsumer(t.Context(), schema.StreamName(0), name); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
	}
	expect(t, fold, upTo(4)...)
}

// until returns when the only JetStream consumer is as wanted.
func until(t *testing.T, js jetstream.JetStream, wanted func(*jetstream.ConsumerInfo) bool) {
	t.Helper()
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	for is := false; !is && t.Context().Err() == nil; {
		for info := range s.ListConsumers(t.Context()).Info() {
			is = wanted(info)
		}
	}
}

func TestWaitForSkipsOtherKinds(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	c, _ := start(t, js, &recorder{}, ReaderOptions{})
	publishMemory(t, js, 1)
	launches := publish(t, js, schema.KindLaunch, message(1, 1, schema.KindLaunch))
	wait(t, c, launches)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.WaitFor(ctx, launches+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a message that is not stored gave %v", err)
	}
}

func TestClosedConnectionEndsRun(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	c := NewReader(ReaderOptions{}, js, &recorder{}, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	<-c.Ready()
	js.Conn().Close()
	if err := <-done; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Run gave %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	c, _ := start(t, js, &recorder{}, ReaderOptions{})
	clock := time.Now().Add(-100 * time.Second).Truncate(time.Second)
	for _, seq := range []uint64{1, 1, 4} {
		h := schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: seq,
			ClockOffset: clock.UnixNano() - int64(seq)}
		publish(t, js, schema.KindMemory, encode(schema.KindMemory, h))
	}
	wait(t, c, publish(t, js, schema.KindMemory, hostile))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	want := `# HELP gputap_consumer_batches_total Messages read, by outcome.
# TYPE gputap_consumer_batches_total counter
gputap_consumer_batches_total{consumer="recorder",result="duplicate",shard="000"} 1
gputap_consumer_batches_total{consumer="recorder",result="invalid",shard="000"} 1
gputap_consumer_batches_total{consumer="recorder",result="ok",shard="000"} 2
gputap_consumer_batches_total{consumer="recorder",result="refused",shard="000"} 0
gputap_consumer_batches_total{consumer="recorder",result="unknown_kind",shard="000"} 0
# HELP gputap_consumer_gap_batches_total Batches missing in those gaps: lost.
# TYPE gputap_consumer_gap_batches_total counter
gputap_consumer_gap_batches_total{cluster="c",consumer="recorder",hostname="h",shard="000"} 2
# HELP gputap_consumer_host_last_event_timestamp_seconds Wall time of a host's last event.
# TYPE gputap_consumer_host_last_event_timestamp_seconds gauge
gputap_consumer_host_last_event_timestamp_seconds{cluster="c",consumer="recorder",hostname="h",shard="000"} ` + strconv.FormatFloat(float64(clock.Unix()), 'g', -1, 64) + "\n"
	names := []string{
		"gputap_consumer_batches_total", "gputap_consumer_gap_batches_total",
		"gputap_consumer_host_last_event_timestamp_seconds",
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "gputap_consumer_event_delay_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() < 200 ||
			h.GetSampleSum() > 400 {
			t.Errorf("%d batches of a hundred seconds ago are %g s old together", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("no delays")
}

func TestEnsureStreamsKeepsOtherSettings(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	s, err := js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	if !config.DenyDelete || !config.AllowDirect || config.MaxAge != 24*time.Hour ||
		config.Compression != jetstream.S2Compression {
		t.Errorf("created %+v", config)
	}
	config.Description = "ours"
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s, err = js.Stream(t.Context(), schema.StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if config = s.CachedInfo().Config; config.MaxAge != time.Hour || config.Description != "ours" {
		t.Errorf("adjusted to age %s, description %q", config.MaxAge, config.Description)
	}
}

// TestLagOfBlockedFold: the lag counts messages that are stored and not folded, also if it was stored after the last
// message was sent.
func TestLagOfBlockedFold(t *testing.T) {
	t.Parallel()
	const batches = 50
	js := connectReady(t)
	fold := &recorder{hold: make(chan struct{})}
	c, _ := start(t, js, fold, ReaderOptions{})
	t.Cleanup(func() { close(fold.hold) })
	publishMemory(t, js, 1)
	fold.hold <- struct{}{}
	wait(t, c, 1)
	if lag := c.Stats().Lag; lag != 0 {
		t.Errorf("all is folded, and the lag is %d", lag)
	}
	for seq := uint64(2); seq <= batches; seq++ {
		publishMemory(t, js, seq)
	}
	eventually(t, "the lag is known", func() bool { return c.Stats().Lag == batches-1 })
	for seq := uint64(2); seq <= batches; seq++ {
		fold.hold <- struct{}{}
		wait(t, c, seq)
		if lag := c.Stats().Lag; lag != batches-seq {
			t.Fatalf("%d of %d are folded, and the lag is %d", seq, batches, lag)
		}
	}
}

func TestUnknownShardEndsRun(t *testing.T) {
	t.Parallel()
	b := bustest.NewServer(t, "")
	js := b.Connect()
	c := NewReader(ReaderOptions{Shard: 7, Retry: retry}, js, &recorder{}, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }() // waits: nobody has set the bus up
	reshard(t, js, 2)
	err := <-ended
	if err == nil || !strings.Contains(err.Error(), "no shard 7: generation 1 has 2 shards, from 0 to 1") {
		t.Errorf("says %v", err)
	}
}

// heartbeats is a fold that takes nothing else.
type heartbeats struct{ recorder }

func (*heartbeats) Kinds() []schema.Kind { return []schema.Kind{schema.KindHost} }

// TestReaderOfHeartbeatsKnowsTheEnd: NATS sends it no other messages, which may be the last ones of the stream.
func TestReaderOfHeartbeatsKnowsTheEnd(t *testing.T) {
	t.Parallel()
	js := connectReady(t)
	fold := &heartbeats{}
	r, _ := start(t, js, fold, ReaderOptions{})
	wait(t, r, publishMemory(t, js, 1, 2))
	last := publish(t, js, schema.KindHost, message(1, 1, schema.KindHost))
	wait(t, r, publishMemory(t, js, 3))
	if fold.heartbeats != 1 || r.Applied() != last {
		t.Errorf("%d heartbeats, read up to %d; want 1 and %d", fold.heartbeats, r.Applied(), last)
	}
	for sequence, want := range map[uint64]bool{0: false, last - 1: false, last: true, last + 1: true} {
		if folded, err := r.Folded(t.Context(), sequence); err != nil || folded != want {
			t.Errorf("folded after message %d: %t, %v", sequence, folded, err)
		}
	}
}
