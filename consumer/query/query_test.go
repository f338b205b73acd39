package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

type row struct {
	Shard, Number int
	Text          string
}

// rowsOf makes rows whose texts are so long.
func rowsOf(shard, n, long int) []row {
	var list []row
	for i := range n {
		list = append(list, row{shard, i, strings.Repeat("<é>", long)})
	}
	return list
}

func sequence(list []row) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

// shardWith is a shard that has these rows, whatever the question.
func shardWith(number int, epoch uint64, list []row) Shard {
	return Shard{Number: number, Epoch: epoch, Take: func(*Question) (Taken, error) {
		return Taken{Applied: uint64(100 + number), EventTime: time.Unix(int64(number), 0), Total: len(list),
			Rows: sequence(list)}, nil
	}}
}

// serve runs a service on its own connection until the test ends, and waits until it listens.
func serve(t *testing.T, account *bustest.Account, instance string, shards func() []Shard) (*Service, *nats.Conn) {
	t.Helper()
	nc := account.Connect().Conn()
	s := NewService(Options{Fold: "leak", Instance: instance, Version: "dev", Shards: shards,
		Interval: time.Millisecond}, nc, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	bustest.Eventually(t, "every subject has a subscription", func() bool {
		return nc.NumSubscriptions() >= 10*len(shards()) && nc.Flush() == nil // nine for discovery
	})
	return s, nc
}

func always(shards ...Shard) func() []Shard { return func() []Shard { return shards } }

func ask(t *testing.T, nc *nats.Conn, timeout time.Duration, shards ...int) *Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	a, err := NewClient(nc).Ask(ctx, "leak", shards, Question{What: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const enough = 30 * time.Second

// TestAnswerIsGathered asks three shards of two instances. One of them has more rows than fit into a message, and one
// row that does not.
func TestAnswerIsGathered(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	truth := [][]row{rowsOf(0, 3, 1), rowsOf(1, 3000, 200), {{1, 1, strings.Repeat("x", 3<<20)}}}
	serve(t, account, "a", always(shardWith(0, 1, truth[0]), shardWith(1, 7, truth[1])))
	serve(t, account, "b", always(shardWith(2, 2, truth[2])))
	a := ask(t, account.Connect().Conn(), enough, 0, 1, 2)
	if len(a.Replies) != 3 || len(a.Missing) != 0 {
		t.Fatalf("%d replies, missing %+v", len(a.Replies), a.Missing)
	}
	got, err := Rows[row](a)
	if err != nil || !slices.Equal(got, slices.Concat(truth...)) {
		t.Errorf("%d rows, %v; want %d", len(got), err, len(slices.Concat(truth...)))
	}
	want := Page{Fold: "leak", Shard: 1, Epoch: 7, Instance: "a", Applied: 101, EventTime: time.Unix(1, 0),
		Total: 3000, Number: 6, Last: true}
	page := a.Replies[1].Page
	if page.EventTime = page.EventTime.Local(); page != want {
		t.Errorf("last page %+v, want %+v", page, want)
	}
	for _, r := range a.Replies {
		for _, body := range r.bodies {
			if len(body) > 1<<20-headerRoom {
				t.Errorf("a body has %d bytes", len(body))
			}
		}
	}
}

// A row that is not JSON ends the answer with the reason, at once.
func TestRowThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	s, _ := serve(t, account, "a", always(Shard{Number: 0, Epoch: 1, Take: func(*Question) (Taken, error) {
		return Taken{Total: 2, Rows: func(yield func(any) bool) { _ = yield(1) && yield(math.NaN()) }}, nil
	}}))
	a := ask(t, account.Connect().Conn(), enough, 0)
	if len(a.Missing) != 1 || !strings.Contains(a.Missing[0].Reason, "NaN") {
		t.Errorf("got %+v", a)
	}
	if n := testutil.ToFloat64(s.WithLabelValues("failed")); n != 1 {
		t.Errorf("%g questions failed", n)
	}
}

func TestMissingShardsAreNamed(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	serve(t, account, "a", always(shardWith(0, 1, nil)))
	_, dead := serve(t, account, "b", always(shardWith(1, 1, nil), shardWith(2, 1, nil)))
	dead.Close()
	client := account.Connect().Conn()
	silent, err := client.SubscribeSync(schema.QuestionSubject("leak", 3))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Unsubscribe() }()
	a := ask(t, client, 2*time.Second, 0, 1, 2, 3)
	want := []Missing{{1, reasonNobody}, {2, reasonNobody}, {3, reasonSilent}}
	if len(a.Replies) != 1 || !slices.Equal(a.Missing, want) {
		t.Errorf("%d replies, missing %+v, want %+v", len(a.Replies), a.Missing, want)
	}
}

// TestHigherEpochWins: two instances answer for a shard. The one with the lower epoch finishes when the other one has
// announced its answer, which is larger.
func TestHigherEpochWins(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	announced := make(chan struct{})
	old, young := shardWith(0, 3, rowsOf(0, 1, 1)), shardWith(0, 4, rowsOf(0, 9000, 100))
	takeOld, takeYoung := old.Take, young.Take
	var youngNC atomic.Pointer[nats.Conn]
	old.Take = func(q *Question) (Taken, error) {
		<-announced
		return takeOld(q)
	}
	young.Take = func(q *Question) (Taken, error) {
		if err := youngNC.Load().Flush(); err != nil { // the server has the announcement
			return Taken{}, err
		}
		announced <- struct{}{}
		return takeYoung(q)
	}
	serve(t, account, "old", always(old))
	_, nc := serve(t, account, "young", always(young))
	youngNC.Store(nc)
	client := account.Connect().Conn()
	for range 5 {
		if a := ask(t, client, enough, 0); len(a.Replies) != 1 || a.Replies[0].Epoch != 4 {
			t.Fatalf("got %+v", a.Replies)
		}
	}
}

func TestLostShardIsNotAnswered(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	var lost atomic.Bool
	_, nc := serve(t, account, "a", func() []Shard {
		if lost.Load() {
			return nil
		}
		return []Shard{shardWith(0, 1, nil)}
	})
	client := account.Connect().Conn()
	if a := ask(t, client, enough, 0); len(a.Replies) != 1 {
		t.Fatalf("the owner does not answer: %+v", a.Missing)
	}
	lost.Store(true)
	if a := ask(t, client, enough, 0); len(a.Replies) != 0 {
		t.Errorf("a lost shard is answered: %+v", a.Replies)
	}
	bustest.Eventually(t, "no subscription is left", func() bool { return nc.NumSubscriptions() == 0 })
}

// TestQuestionsAreBounded blocks the workers and asks more often than the service queues.
func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	blocked := make(chan struct{})
	s, _ := serve(t, account, "a", always(Shard{Epoch: 1, Take: func(*Question) (Taken, error) {
		<-blocked
		return Taken{Rows: sequence(nil)}, nil
	}}))
	client := account.Connect().Conn()
	const more = 50
	for range workers + maxQueued + more {
		if err := client.PublishRequest(schema.QuestionSubject("leak", 0), "nobody", []byte(`{"what":"x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	rejected := s.WithLabelValues("rejected")
	bustest.Eventually(t, "questions are rejected", func() bool { return testutil.ToFloat64(rejected) >= more })
	if a := ask(t, client, enough, 0); len(a.Missing) != 1 ||
		!strings.Contains(a.Missing[0].Reason, "ask again later") {
		t.Errorf("missing %+v", a.Missing)
	}
	close(blocked)
	answered := s.WithLabelValues("answered")
	bustest.Eventually(t, "the queue is empty", func() bool {
		return testutil.ToFloat64(answered)+testutil.ToFloat64(rejected) == workers+maxQueued+more+1
	})
}

func TestFailuresHaveTheirReason(t *testing.T) {
	t.Parallel()
	account := bustest.NewAccount(t)
	for shard, take := range []func(*Question) (Taken, error){
		func(*Question) (Taken, error) { return Taken{}, fmt.Errorf("%w: x", ErrUnknown) },
		func(*Question) (Taken, error) { panic("at the fold") },
		func(*Question) (Taken, error) { return Taken{}, errors.New("disk is full") },
	} {
		serve(t, account, fmt.Sprint(shard), always(Shard{Number: shard, Epoch: 1, Take: take}))
	}
	a := ask(t, account.Connect().Conn(), enough, 0, 1, 2)
	for i, want := range []string{"does not know", "at the fold", "disk is full"} {
		if i >= len(a.Missing) || !strings.Contains(a.Missing[i].Reason, want) {
			t.Errorf("shard %d: missing %+v, want %s", i, a.Missing, want)
		}
	}
}

// TestLostPageMakesAnAnswerIncomplete answers by hand without the second of three pages.
func TestLostPageMakesAnAnswerIncomplete(t *testing.T) {
	t.Parallel()
	nc := bustest.Connect(t).Conn()
	sub, err := nc.Subscribe(schema.QuestionSubject("leak", 0), func(m *nats.Msg) {
		for _, p := range []Page{{Number: 1}, {Number: 3, Last: true}} {
			header, _ := json.Marshal(&p)
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{pageHeader: {string(header)}}})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if a := ask(t, nc, enough, 0); len(a.Replies) != 0 || a.Missing[0].Reason != reasonPartial {
		t.Errorf("replies %+v, missing %+v", a.Replies, a.Missing)
	}
}

func TestTopologyIsRead(t *testing.T) {
	t.Parallel()
	js := bustest.Connect(t)
	c := NewClient(js.Conn())
	if _, _, err := c.Topology(t.Context()); !errors.Is(err, ErrNoTopology) {
		t.Errorf("without streams: %v", err)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name   string
		filter Filter
		want   bool
	}{
		{"nothing", Filter{}, true},
		{"exact names", Filter{Cluster: "c", Host: "gpu-1", User: "ann", Comm: "a/[b]", PID: 7}, true},
		{"patterns", Filter{Cluster: "?", Host: "gpu-*", User: "a*", Comm: "a*]"}, true},
		{"uid", Filter{User: "1000"}, true},
		{"jobs", Filter{Job: "slurm:*"}, true},
		{"another job", Filter{Job: "slurm:1"}, false},
		{"another cluster", Filter{Cluster: "d"}, false},
		{"a prefix", Filter{Host: "gpu"}, false},
		{"another user", Filter{User: "bob"}, false},
		{"another uid", Filter{User: "100"}, false},
		{"another program", Filter{Comm: "b*"}, false},
		{"another process", Filter{PID: 8}, false},
		{"class", Filter{Host: "gpu-[2-9]"}, false},
	} {
		if got := r.filter.Process(&Subject{Cluster: "c", Host: "gpu-1", User: "ann", UID: 1000, Comm: "a/[b]", PID: 7,
			Job: "slurm:17"}); got != r.want {
			t.Errorf("%s: %t", r.name, got)
		}
	}
	if err := (&Filter{Host: "gpu-["}).Validate(); err == nil || !strings.Contains(err.Error(), `host "gpu-["`) {
		t.Errorf("an open class: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"what":"processes","host":"gpu-*","limit":3}`))
	f.Add([]byte(`{"what":"x","host":"[","limit":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if q, err := Parse(data); err == nil {
			q.Process(&Subject{Cluster: "c", Host: "h", User: "u", UID: 1, Comm: "comm", PID: 1, Job: "j"})
		}
	})
}

// TestQuestionWhileDisconnected: the error says that the connection is lost, and the next question succeeds.
func TestQuestionWhileDisconnected(t *testing.T) {
	t.Parallel()
	s := bustest.NewServer(t, t.TempDir())
	js := s.Connect()
	c := NewClient(js.Conn())
	s.Stop()
	fails := func(want error) func() bool {
		return func() bool {
			// A request that the server received just before it stopped has no reply, ever.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _, err := c.Topology(ctx)
			return errors.Is(err, want)
		}
	}
	bustest.Eventually(t, "the client knows it", fails(ErrDisconnected))
	s.Start()
	bustest.Eventually(t, "NATS answers", fails(ErrNoTopology))
}
