package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// newBus starts a nats-server in this process and connects to it.
func newBus(t *testing.T, o server.Options) (url string, js jetstream.JetStream) {
	t.Helper()
	o.Host, o.Port, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", -1, t.TempDir(), true, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL(), js
}

// typed runs gputap with these arguments in this process.
func typed(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	p := &app.Process{
		Name: "gputap", Args: args, Metrics: prometheus.NewRegistry(), Stdout: &out, Stderr: io.Discard,
		Log: slog.New(slog.DiscardHandler),
	}
	err = run(t.Context(), p)
	return out.String(), err
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("no %q in\n%s", word, text)
		}
	}
}

func TestStreamInit(t *testing.T) {
	t.Parallel()
	url, js := newBus(t, server.Options{JetStream: true})
	stream := func(args ...string) string {
		t.Helper()
		out, err := typed(t, append([]string{"stream"}, append(args, "--nats.url", url)...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	contains(t, stream("init", "--shards", "4", "--max-bytes", "64MiB", "--dry-run"), "create", "GPUTAP_EV_003",
		"16 MiB, 24h0m0s, 1 copy",
		"GPUTAP_STATE", "KV_gputap_lease", "gputap_meta/topology", "nothing was changed", "64.00 MiB")
	if own, err := bus.OwnStreams(t.Context(), js); err != nil || len(own) > 0 {
		t.Errorf("a dry run created %v, %v", own, err)
	}
	contains(t, stream("init", "--shards", "4", "--max-bytes", "64MiB"), "streams are ready", "4 shards (generation 1)")
	contains(t, stream("init"), "nothing to change: NATS reserves 64.00 MiB", "4 shards")
	contains(t, stream("init", "--max-age", "48h", "--dry-run"), "change",
		"16 MiB, 24h0m0s, 1 copy → 16 MiB, 48h0m0s, 1 copy")
	var answer initJSON
	if err := json.Unmarshal([]byte(stream("init", "--shards", "2", "-o", "json")), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Topology.Generation != 2 || answer.Topology.First != 4 || answer.MaxBytes != 64<<20 || answer.DryRun ||
		len(answer.Steps) == 0 {
		t.Errorf("answers %+v", answer)
	}
	contains(t, stream("init"), "nothing to change", "2 shards (generation 2)")
}

func TestStreamCommandsThatFail(t *testing.T) {
	t.Parallel()
	url, js := newBus(t, server.Options{JetStream: true, JetStreamMaxStore: 1 << 30})
	bare, _ := newBus(t, server.Options{})
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		url    string
		args   []string
		status int
		want   string
	}{
		{"no address", "", []string{"init"}, 2, "--nats.url"},
		{"nobody there", "nats://127.0.0.1:1", []string{"info"}, 5, "connect to NATS at nats://127.0.0.1:1: "},
		{"no JetStream", bare, []string{"init"}, 1, "no JetStream"},
		{"unknown command", url, []string{"inti"}, 2, `"inti": did you mean gputap stream init?`},
		{"argument", url, []string{"init", "x"}, 2, "x"},
		{"no shards", url, []string{"init", "--shards", "0"}, 2, "--shards"},
		{"less than none", url, []string{"init", "--replicas", "-1"}, 2, "--replicas"},
		{"too many shards", url, []string{"init", "--shards", "5000"}, 2, "1 to 1024"},
		{"too many copies", url, []string{"init", "--replicas", "6"}, 2, "1 to 5"},
		{"no time", url, []string{"init", "--max-age", "0"}, 2, "--max-age"},
		{"no size", url, []string{"init", "--max-bytes", "many"}, 2, "64GB"},
		{"too much", url, []string{"init", "--max-bytes", "64GiB"}, 1, "max_file_store"},
		{"too short", url, []string{"init", "--max-age", "1ms"}, 2, "1s or more"},
		{"a single server", url, []string{"init", "--replicas", "3"}, 1, "--replicas 1"},
		{"unknown output", url, []string{"info", "-o", "xml"}, 2, "table or json"},
		{"rm without yes", url, []string{"rm"}, 2, "--yes"},
		{"rm of the present", url, []string{"rm", "--generation", "1", "--yes"}, 1, "only closed generations"},
		{"rm of the present, not asked for", url, []string{"rm", "--generation", "1"}, 1, "only closed generations"},
		{"rm of none", url, []string{"rm", "--generation", "7", "--yes"}, 1,
			"remove generation 7: NATS holds no such generation"},
		{"rm of zero", url, []string{"rm", "--generation", "0", "--yes"}, 2, "1 or more"},
		{"rm of a fold that has nothing", url, []string{"rm", "--fold", "launch", "--yes"}, 1,
			"remove the states of launch"},
		{"rm of both", url, []string{"rm", "--fold", "launch", "--generation", "1"}, 2, "use only one"},
		{"no letter", url, []string{"dlq", "--show", "9"}, 1, "read dead letter 9: no letter has this number"},
		{"letter zero", url, []string{"dlq", "--show", "0"}, 2, "--show 0"},
		{"two at once", url, []string{"dlq", "--show", "1", "--purge"}, 2, "use only one"},
		{"the last of all", url, []string{"dlq", "--purge", "--last", "5", "--yes"}, 2, "--last"},
		{"raw list", url, []string{"dlq", "--raw"}, 2, "--show"},
		{"purge without yes", url, []string{"dlq", "--purge"}, 2, "--yes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := typed(t, append([]string{"stream", "--nats.url", tt.url}, tt.args...)...)
			if app.ExitCode(err) != tt.status || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ends with %d, %v, want %d, %q", app.ExitCode(err), err, tt.status, tt.want)
			}
		})
	}
}

// TestInterruptWhileConnecting does not report that NATS is unreachable.
func TestInterruptWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"stream", "info"}, {"simulate"}} {
		p := &app.Process{
			Name: "gputap", Args: append(command, "--nats.url", "nats://127.0.0.1:1"),
			Metrics: prometheus.NewRegistry(), Stdout: io.Discard, Stderr: io.Discard,
			Log: slog.New(slog.DiscardHandler),
		}
		interrupted, interrupt := context.WithCancel(t.Context())
		interrupt()
		if err := run(interrupted, p); !errors.Is(err, context.Canceled) || app.ExitCode(err) != 1 {
			t.Errorf("%v ends with %d, %v", command, app.ExitCode(err), err)
		}
	}
}

// publishLetter publishes a dead letter as a consumer does.
func publishLetter(t *testing.T, js jetstream.JetStream, data []byte) {
	t.Helper()
	m := &nats.Msg{Subject: schema.DeadLetterSubject("leak", 0), Data: data, Header: nats.Header{
		"Gputap-Error": {"no batch: \x1b[31mred"}, "Gputap-Subject": {"gputap.v1.ev.0.c.h.memory"},
		"Gputap-Stream": {"GPUTAP_EV_000"}, "Gputap-Seq": {"42"},
	}}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestStreamInfoAndRemoval(t *testing.T) {
	t.Parallel()
	url, js := newBus(t, server.Options{JetStream: true})
	stream := func(args ...string) (string, error) {
		return typed(t, append([]string{"stream", "--nats.url", url}, args...)...)
	}
	out, err := stream("info")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "no gputap topology", "gputap stream init")
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"gpu-1", "gpu-2"} {
		batches := consumertest.Memory(t, host)
		batches.Process(7, 1, "python3").Alloc(7, 0x1000, 70<<20, 100, 5)
		for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch} {
			if _, err := js.Publish(t.Context(), schema.Subject(0, "test", host, kind), batches.Message()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	leases, err := js.KeyValue(t.Context(), schema.LeaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"leak.0": `{"instance":"pod-b"}`, "leak.1": `{"instance":"pod-a"}`, "leak.2": `not json`,
		"m.leak.pod-a": `{"instance":"pod-a"}`, "m.leak.7": `{}`, "odd": `{}`, "odd.x": `{}`,
	} {
		if _, err := leases.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	// the second is left over from an instance that was killed
	for _, name := range []string{"leak-000-abcdefgh", "launch-000-abcdefgh"} {
		if _, err = js.CreateConsumer(t.Context(), schema.StreamName(0),
			jetstream.ConsumerConfig{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err = stream("info"); err != nil {
		t.Fatal(err)
	}
	contains(t, out, "generation 2: 2 shards, from 1 to 2; closed generations: 1", "GPUTAP_EV_000", "sealed",
		"GPUTAP_DLQ", "pod-a", "no reader")
	if out, err = stream("info", "-o", "json"); err != nil {
		t.Fatal(err)
	}
	var all busJSON
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	first := all.Streams[0]
	if len(all.Streams) != 8 || first.Stream != "GPUTAP_EV_000" || first.Messages != 4 || first.Hosts != 2 ||
		first.Subjects != 4 ||
		first.Generation != 1 || !first.Sealed || first.Consumers != 2 || first.First == nil ||
		all.Streams[2].Generation != 2 {
		t.Errorf("says %+v", all.Streams)
	}
	if len(all.Folds) != 3 || all.Folds[0].Lag == nil || *all.Folds[0].Lag != 4 || all.Folds[0].Owner != "pod-b" ||
		all.Folds[1].Owner != "pod-a" || all.Folds[2].Owner != "?" {
		t.Errorf("folds %s", out)
	}

	if out, err = stream("rm", "--generation", "1", "--yes"); err != nil || out != "removed GPUTAP_EV_000\n" {
		t.Errorf("removes %q, %v", out, err)
	}
	if out, err = stream("rm", "--yes"); err != nil || strings.Count(out, "removed ") != 7 {
		t.Errorf("removes %q, %v", out, err)
	}
	if out, err = stream("rm", "--yes"); err != nil || out != "nothing to remove\n" {
		t.Errorf("removes %q, %v", out, err)
	}
}

// TestStreamInfoLag shows the lag of the owner, whatever other instances read.
func TestStreamInfoLag(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, owner string
		want        uint64
	}{
		{"the owner's", "pod-b", 5},
		{"of an owner whose consumer has no metadata", "pod-a", 0},
		{"without an owner", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, js := newBus(t, server.Options{JetStream: true})
			stream := func(args ...string) (string, error) {
				return typed(t, append([]string{"stream", "--nats.url", url}, args...)...)
			}
			if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "h", schema.KindMemory), nil); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []jetstream.ConsumerConfig{
				{Name: "leak-000-owner", Metadata: map[string]string{consumer.OwnerKey: "pod-b"}},
				{Name: "leak-000-reader", DeliverPolicy: jetstream.DeliverNewPolicy},
			} {
				made, err := js.CreateConsumer(t.Context(), schema.StreamName(0), c)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(c.Name, "reader") {
					reading, err := made.Consume(func(jetstream.Msg) {})
					if err != nil {
						t.Fatal(err)
					}
					defer reading.Stop()
				}
			}
			leases, err := js.KeyValue(t.Context(), schema.LeaseBucket)
			if err != nil {
				t.Fatal(err)
			}
			if tt.owner != "" {
				if _, err := leases.PutString(t.Context(), "leak.0", `{"instance":"`+tt.owner+`"}`); err != nil {
					t.Fatal(err)
				}
			}
			var all busJSON
			var out string
			for len(all.Folds) == 0 && t.Context().Err() == nil { // until the reader's first pull request arrives
				out, err = stream("info", "-o", "json")
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(out), &all); err != nil {
					t.Fatal(err)
				}
			}
			if f := all.Folds[0]; f.Owner != tt.owner || f.Lag == nil || *f.Lag != tt.want {
				t.Errorf("%q owns and lags %d, but it says %s", tt.owner, tt.want, out)
			}
		})
	}
}

func TestStreamDeadLetters(t *testing.T) {
	t.Parallel()
	url, js := newBus(t, server.Options{JetStream: true})
	stream := func(args ...string) (string, error) {
		return typed(t, append([]string{"stream", "--nats.url", url}, args...)...)
	}
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	dlq := func(args ...string) string {
		t.Helper()
		out, err := stream(append([]string{"dlq"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	contains(t, dlq(), "0 dead letters")
	host := consumertest.Memory(t, "gpu-9")
	host.Process(7, 1, "python3").Alloc(7, 0x1000, 70<<20, 100, 5)
	batch := host.Message()
	publishLetter(t, js, []byte("garbage"))
	publishLetter(t, js, batch)
	publishLetter(t, js, nil)
	out := dlq()
	contains(t, out, "leak", "gputap.v1.ev.0.c.h.memory", "no batch: ?[31mred", "3 dead letters")
	if strings.Contains(out, "\x1b") {
		t.Error("a dead letter can control the terminal")
	}
	if lines := strings.Split(strings.TrimSpace(dlq("--last", "2", "-o", "json")), "\n"); len(lines) != 2 {
		t.Errorf("the last two are %q", lines)
	} else {
		var l letter
		if err := json.Unmarshal([]byte(lines[0]), &l); err != nil || l.Seq != 2 || l.Bytes != uint64(len(batch)) ||
			l.Message != "42" || l.Fold != "leak" {
			t.Errorf("%v: %+v", err, l)
		}
	}
	following, interrupt := context.WithCancel(t.Context())
	seen := make(letters, 3)
	go func() {
		for range 3 {
			<-seen
		}
		interrupt()
	}()
	follow := &busCommand{p: &app.Process{Stdout: seen, Log: slog.New(slog.DiscardHandler)}}
	if err := follow.letters(following, js, letterFlags{last: 3, follow: true, out: &output{json: true}}); err != nil {
		t.Error(err)
	}
	if s, err := js.Stream(t.Context(), schema.DeadLetterStream); err != nil || s.CachedInfo().State.Consumers != 0 {
		t.Errorf("%d JetStream consumers are left behind, %v", s.CachedInfo().State.Consumers, err)
	}
	contains(t, dlq("--show", "2"), "gpu-9", "memory", "batch seq", "42 of GPUTAP_EV_000", "00000000")
	contains(t, dlq("--show", "1"), "not a batch", "|garbage|")
	contains(t, dlq("--show", "3", "-o", "json"), `"batch":null`)
	if dlq("--show", "2", "--raw") != string(batch) {
		t.Error("the raw batch differs")
	}
	contains(t, dlq("--purge", "--yes"), "removed 3 dead letters")
	contains(t, dlq(), "0 dead letters")
	publishLetter(t, js, batch)
	var removed purgeJSON
	if err := json.Unmarshal([]byte(dlq("--purge", "--yes", "-o", "json")), &removed); err != nil ||
		removed.Removed != 1 || removed.Bytes <= uint64(len(batch)) {
		t.Errorf("%v: %+v", err, removed)
	}
}

// TestFollowingLettersEnds removes the stream that gputap stream dlq --follow reads: the command ends with an error.
func TestFollowingLettersEnds(t *testing.T) {
	t.Parallel()
	url, js := newBus(t, server.Options{JetStream: true})
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	publishLetter(t, js, []byte("garbage"))
	seen, ended := make(letters, 1), make(chan error, 1)
	p := &app.Process{
		Name: "gputap", Args: []string{"stream", "dlq", "--follow", "--nats.url", url},
		Metrics: prometheus.NewRegistry(), Stdout: seen, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler),
	}
	go func() { ended <- run(t.Context(), p) }()
	<-seen
	if out, err := typed(t, "stream", "rm", "--yes", "--nats.url", url); err != nil {
		t.Fatal(out, err)
	}
	select {
	case err := <-ended:
		const want = "their stream was removed; run gputap stream init"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ends with %v, want %q", err, want)
		}
	case <-time.After(time.Minute):
		t.Error("still follows a removed stream")
	}
}

// letters receives the written lines.
type letters chan string

func (l letters) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestAsk(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"yes\n": true, " yes \n": true, "y\n": false, "": false, "no\n": false,
		strings.Repeat("yes", 99): false} {
		if err := ask(t.Context(), strings.NewReader(answer), io.Discard, "Really?"); (err == nil) != want {
			t.Errorf("%q is %v", answer, err)
		}
	}
	if err := (&busCommand{}).confirm(t.Context(), true, "x"); err != nil {
		t.Error(errors.New("--yes does not suppress the question"))
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	silent, ended := io.Pipe()
	defer ended.Close()
	if err := ask(interrupted, silent, io.Discard, "Really?"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted it is %v", err)
	}
}
