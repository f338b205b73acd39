package replay

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/simulate"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// stored returns the messages of a bus by subject, without the shard.
func stored(t *testing.T, l *liveRun, shards int) map[string][][]byte {
	t.Helper()
	all := map[string][][]byte{}
	for shard := range shards {
		s, err := l.js.Stream(t.Context(), schema.StreamName(shard))
		check(t, err)
		for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
			m, err := s.GetMsg(t.Context(), sequence)
			check(t, err)
			var b schema.Batch
			check(t, schema.NewDecoder().Decode(m.Data, &b))
			want := schema.Subject(schema.Shard(b.Cluster, b.Host, shards), b.Cluster, b.Host, b.Kind)
			if m.Subject != want {
				t.Fatalf("a message is on %s, want %s", m.Subject, want)
			}
			key := strings.SplitN(m.Subject, ".", 5)[4]
			all[key] = append(all[key], m.Data)
		}
	}
	return all
}

func publish(t *testing.T, path string, js jetstream.JetStream) (*Publisher, error) {
	t.Helper()
	f, err := Open(path, recording.Selection{}, discard)
	check(t, err)
	defer f.Close()
	p, err := NewPublisher(t.Context(), f, Pace{}, js, discard)
	if err != nil {
		return p, err
	}
	return p, p.Run(t.Context())
}

// TestPublisher publishes a recording of three shards to a bus of two: each message unchanged, in order for each host
// and kind. A second time, and on the recorded bus, it is refused.
func TestPublisher(t *testing.T) {
	t.Parallel()
	from, to := startLive(t, 3), startLive(t, 2)
	from.simulate(simulate.Options{Hosts: 6})
	from.settle()
	path := from.record(time.Unix(1, 0))
	p, err := publish(t, path, to.js)
	check(t, err)
	want, got := stored(t, from, 3), stored(t, to, 2)
	messages := uint64(0)
	for key, list := range want {
		messages += uint64(len(list))
		if len(got[key]) != len(list) {
			t.Fatalf("%s has %d messages, want %d", key, len(got[key]), len(list))
		}
		for i := range list {
			if !bytes.Equal(list[i], got[key][i]) {
				t.Fatalf("message %d of %s differs", i, key)
			}
		}
	}
	if s := p.Published(); s.Acked != messages || messages == 0 || s.Events == 0 {
		t.Errorf("%+v, and there are %d messages", s, messages)
	}
	for what, js := range map[string]jetstream.JetStream{"again": to.js, "on the recorded bus": from.js} {
		_, err := publish(t, path, js)
		if err == nil || !strings.Contains(err.Error(), "gputap stream rm") ||
			!strings.Contains(err.Error(), "host sim-000") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := stored(t, to, 2); len(got) != len(want) {
		t.Errorf("a refused replay published %d subjects", len(got)-len(want))
	}
}

// TestPublisherRetries publishes to a shard whose stream appears later.
func TestPublisherRetries(t *testing.T) {
	t.Parallel()
	from, to := startLive(t, 1), startLive(t, 1)
	from.simulate(simulate.Options{Hosts: 2})
	from.settle()
	f, err := Open(from.record(time.Unix(1, 0)), recording.Selection{}, discard)
	check(t, err)
	defer f.Close()
	failed := &firstLine{seen: make(chan struct{})}
	p, err := NewPublisher(t.Context(), f, Pace{}, to.js, slog.New(failed))
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	check(t, to.js.DeleteStream(ctx, schema.StreamName(0)))
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	<-failed.seen
	check(t, bus.EnsureStreams(ctx, to.js, bus.StreamOptions{Shards: 1}))
	check(t, <-ended)
	if s := p.Published(); s.Acked != f.Summary().Messages || s.Retries == 0 {
		t.Errorf("%+v, and there are %d messages", s, f.Summary().Messages)
	}
}

// firstLine closes seen when the first line is logged.
type firstLine struct {
	once sync.Once
	seen chan struct{}
}

func (h *firstLine) Enabled(context.Context, slog.Level) bool { return true }
func (h *firstLine) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *firstLine) WithGroup(string) slog.Handler            { return h }
func (h *firstLine) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.seen) })
	return nil
}

// TestPublisherNeedsTopology refuses a bus without streams.
func TestPublisherNeedsTopology(t *testing.T) {
	t.Parallel()
	from, to := startLive(t, 1), startLive(t, 1)
	path := from.record(time.Unix(1, 0))
	check(t, to.js.DeleteKeyValue(t.Context(), schema.MetaBucket))
	if _, err := publish(t, path, to.js); err == nil || !strings.Contains(err.Error(), "gputap stream init") {
		t.Errorf("ends with %v", err)
	}
}
