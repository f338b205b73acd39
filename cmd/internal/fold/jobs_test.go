package fold

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const jobShards = 3

// watchers are readers of all shards.
type watchers struct {
	t       *testing.T
	js      jetstream.JetStream
	folds   [jobShards]*Anomalies
	readers [jobShards]*consumer.Reader
}

func readAll(t *testing.T, js jetstream.JetStream) *watchers {
	t.Helper()
	w := &watchers{t: t, js: js}
	s := newSummaries(js, "anomaly", slog.New(slog.DiscardHandler))
	for i := range w.folds {
		to := outputs{summarize: func(one rank.Summary) { s.publish(t.Context(), one) }}
		w.folds[i] = newAnomalies(config.DefaultAnomaly(), to)
		w.readers[i] = consumer.NewReader(consumer.ReaderOptions{Shard: i}, js, w.folds[i],
			slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := w.readers[i].Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		t.Cleanup(func() { cancel(); <-ended })
	}
	w.wait() // all events are folded, so all summaries are stored
	w.wait()
	return w
}

// wait waits until everything that is stored now is folded.
func (w *watchers) wait() {
	w.t.Helper()
	for i, r := range w.readers {
		stream, err := w.js.Stream(w.t.Context(), schema.StreamName(i))
		if err != nil {
			w.t.Fatal(err)
		}
		if err := r.WaitFor(w.t.Context(), stream.CachedInfo().State.LastSeq); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The hosts of a job lie on several shards. Their summaries meet on the shard of the job, once each, also when another
// reader publishes them again.
func TestStragglerOfAJobOnSeveralShards(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: jobShards}); err != nil {
		t.Fatal(err)
	}
	j := &consumertest.Job{Name: "slurm:7.0", Ranks: 8, PerHost: 2, Random: rand.New(rand.NewPCG(1, 2)),
		Step: consumertest.NCCL(20, 5, 100*time.Millisecond, 30*time.Millisecond, 0)}
	used := map[int]bool{}
	for _, m := range j.Messages(t, 40*time.Second) {
		b := consumertest.Decode(t, m.Data)
		shard := schema.Shard(b.Cluster, b.Host, jobShards)
		used[shard] = true
		if _, err := js.Publish(t.Context(), schema.Subject(shard, b.Cluster, b.Host, b.Kind), m.Data); err != nil {
			t.Fatal(err)
		}
	}
	home := schema.Shard("test", j.Name, jobShards)
	if len(used) < 2 {
		t.Fatalf("the hosts lie on shards %v", used)
	}
	first := readAll(t, js)
	second := readAll(t, js)
	for n, w := range []*watchers{first, second} {
		hosts := 0
		for i, f := range w.folds {
			var got []string
			for _, a := range f.Alerts() {
				got = append(got, fmt.Sprint(a.Rule, " ", a.State, " ", a.Severity, " ", a.Host, " ", a.PID))
			}
			want := ""
			if i == home {
				want = "straggler firing info slurm:7.0-2 105"
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("reader %d, shard %d raises %q, want %q", n, i, got, want)
			}
			s := w.readers[i].Stats()
			if s.Missing > 0 || s.Invalid+s.Refused > 0 || n == 1 && i == home && s.Duplicates == 0 {
				t.Errorf("reader %d, shard %d: %+v", n, i, s)
			}
			for _, h := range w.readers[i].Hosts() {
				if hosts++; h.Host == j.Name {
					t.Error("the job is listed as a host")
				}
			}
		}
		if hosts != 4 {
			t.Errorf("%d hosts are listed, want 4", hosts)
		}
	}
	if a, b := jobSections(t, first.folds[home]), jobSections(t, second.folds[home]); !reflect.DeepEqual(a, b) {
		t.Errorf("the states differ after summaries came twice:\n%q\n%q", a, b)
	}
}

func jobSections(t *testing.T, f *Anomalies) (list []snapshot.Section) {
	return append(list, consumertest.Sections(t, f.Jobs)...)
}

// A summary follows its job to the newest generation of shards. Without a stream it is counted as failed, in bounded
// time.
func TestSummariesFollowTheTopology(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	s := newSummaries(js, "anomaly", slog.New(slog.DiscardHandler))
	s.patience = 0
	one := rank.Summary{Cluster: "c", Job: "slurm:1.0", Message: []byte("x")}
	s.publish(t.Context(), one)
	subject := func(shard int) string { return schema.Subject(shard, "c", "slurm:1.0", schema.KindRank) }
	for generation, shards := range []int{1, 2} {
		if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: shards}); err != nil {
			t.Fatal(err)
		}
		s.publish(t.Context(), one) // the first attempt on a closed shard fails
		s.publish(t.Context(), one)
		shard := generation + schema.Shard("c", "slurm:1.0", shards)
		stream, err := js.Stream(t.Context(), schema.StreamName(shard))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.GetLastMsgForSubject(t.Context(), subject(shard)); err != nil {
			t.Errorf("generation %d: %v", generation+1, err)
		}
	}
	if stored, failed := testutil.ToFloat64(s.WithLabelValues("stored")), testutil.ToFloat64(
		s.WithLabelValues("failed")); stored != 3 || failed != 2 {
		t.Errorf("%v are stored and %v failed, want 3 and 2", stored, failed)
	}
}

func TestModeOfStraggler(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ all, own, want string }{
		{config.ModeDefault, config.ModeObserve, alert.Info}, {config.ModeDefault, config.ModeAlert, alert.Warning},
		{config.ModeDefault, config.ModeOff, ""}, {config.ModeAlert, config.ModeOff, alert.Warning},
		{config.ModeOff, config.ModeAlert, ""}, {"", "", alert.Info},
	} {
		c := config.DefaultAnomaly()
		c.Mode, c.Rules.Straggler.Mode = row.all, row.own
		if got := stragglerSeverity(c); got != row.want {
			t.Errorf("anomaly.mode %q and straggler.mode %q give severity %q, want %q", row.all, row.own, got, row.want)
		}
	}
}
