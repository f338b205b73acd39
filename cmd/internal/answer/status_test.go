package answer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/naive"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// everyKind are the kinds that hosts publish.
var everyKind = []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync, schema.KindTensor,
	schema.KindHost}

// cutOff is a fold that refuses some batches, and that ends its reader at a heartbeat of a host.
type cutOff struct {
	fold.Fold
	host string
	seq  uint64
	end  func()
	last schema.Header // the last batch of all
}

func (*cutOff) Kinds() []schema.Kind { return everyKind }

func refuses(h *schema.Header) bool { return h.Kind == schema.KindCopy && h.Seq%7 == 0 }

func (c *cutOff) Apply(b *schema.Batch) error {
	c.last = b.Header
	switch {
	case refuses(&b.Header):
		return errors.New("refused")
	case b.Host == c.host && b.Seq == c.seq:
		c.end()
	}
	if slices.Contains(c.Fold.Kinds(), b.Kind) {
		return c.Fold.Apply(b)
	}
	return nil
}

// readUntil returns a reader that has given a shard to a fold, until the heartbeat of a host with that seq or soon
// after, and the sequence of the last message that it has read.
func (p *published) readUntil(t *testing.T, shard int, f fold.Fold, host string, seq uint64) (
	*consumer.Reader, uint64,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &cutOff{Fold: f, host: host, seq: seq, end: cancel}
	opts := consumer.ReaderOptions{Shard: shard, PullMaxBytes: 16 << 10}
	r := consumer.NewReader(opts, p.js, c, slog.New(slog.DiscardHandler))
	must(t, r.Run(ctx))
	return r, p.log.Sequence(&c.last)
}

// beats publishes n heartbeats of a further host of a shard, and returns its name.
func (p *published) beats(t *testing.T, shard, shards int, n uint64) string {
	t.Helper()
	name := ""
	for i := 0; name == ""; i++ {
		if host := fmt.Sprint("beating-", i); schema.Shard("east", host, shards) == shard {
			name = host
		}
	}
	for seq := range n {
		header := schema.Header{Cluster: "east", Host: name, BootID: "1", Seq: seq + 1, Kind: schema.KindHost}
		b := schema.NewBuilder(schema.KindHost)
		p.store(t, shard, schema.Subject(shard, "east", name, schema.KindHost), b.Encode(&header))
	}
	return name
}

// TestStatusEqualsNaiveCount compares every key of the status of two shards with a naive count over what NATS stored:
// batches that repeat, that are cut short or of another host, and that a fold refuses. One fold runs in one shard only,
// one in none, one lags by some messages and one by more than 1,000.
func TestStatusEqualsNaiveCount(t *testing.T) {
	t.Parallel()
	const shards = 2
	p := publish(t, 7, shards)
	hosts := []string{p.beats(t, 0, shards, 300), p.beats(t, 1, shards, 1300)}
	heard := p.log.Hosts()[1].(naive.Object)["heard"].(time.Time)
	now := heard.Add(30 * time.Second)
	truth := []naive.Fold{
		{Name: "leak", Shards: []naive.Shard{
			{Number: 0, Instance: "i", Checkpoint: now.Add(-20 * time.Second)},
			{Number: 1, Instance: "j", Checkpoint: now.Add(-400 * time.Second)}}},
		{Name: "launch", Shards: []naive.Shard{{Number: 0, Instance: "i"}, {Number: 1, Instance: "i"}}},
		{Name: "bandwidth", Shards: nil},
		{Name: "anomaly", Shards: []naive.Shard{{Number: 1, Instance: "k"}}},
	}
	ends := map[string]uint64{"launch": 50, "anomaly": 20}
	for i := range truth {
		f := &truth[i]
		for j := range f.Shards {
			s := &f.Shards[j]
			part := fold.ByName(f.Name).NewUnlimited()
			var reader *consumer.Reader
			if end := ends[f.Name]; end > 0 {
				f.Kinds, f.Refuses = everyKind, refuses
				reader, s.Applied = p.readUntil(t, s.Number, part, hosts[s.Number], end)
			} else {
				f.Kinds, s.Applied = part.Kinds(), math.MaxUint64
				reader = p.read(t, s.Number, part)
			}
			p.answer(t, f.Name, s, &answer.Part{Reader: reader, Folds: fold.Parts(part), Checkpoint: s.Checkpoint})
		}
	}
	got, err := answer.StatusAt(answer.NewFleet(p.js.Conn()), t.Context(), query.Filter{}, now)
	must(t, err)
	same(t, "status", got, p.log.Status(now, shards, truth, nil), []string{"/alerts"}, nil)
	for i, f := range got.Folds {
		if i == 1 && (f.Lag == nil || *f.Lag == 0) || i == 3 && len(f.Lagging) == 0 {
			t.Errorf("%s does not lag", f.Fold)
		}
	}
}

// answer answers questions about one shard of a fold until the test ends.
func (p *published) answer(t *testing.T, fold string, s *naive.Shard, part *answer.Part) {
	t.Helper()
	shard := query.Shard{Number: s.Number, Epoch: 1, Take: part.Take}
	service := query.NewService(query.Options{Fold: fold, Instance: s.Instance, Interval: time.Millisecond,
		Shards: func() []query.Shard { return []query.Shard{shard} }}, p.js.Conn(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { service.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	bustest.Eventually(t, "the shard listens", func() bool {
		a, err := query.NewClient(p.js.Conn()).Ask(ctx, fold, []int{s.Number}, query.Question{What: "status"})
		return err == nil && len(a.Replies) == 1
	})
}

// same compares an answer with what it should be: see naive.Differences.
func same(t *testing.T, what string, got, want any, skipped []string, unordered map[string]string) {
	t.Helper()
	differences, err := naive.Differences(got, want, skipped, unordered)
	must(t, err)
	for i, d := range differences[:min(10, len(differences))] {
		t.Errorf("%s, difference %d of %d: %s", what, i+1, len(differences), d)
	}
}
