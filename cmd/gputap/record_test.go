package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestRecordCommand records a simulated fleet into a file and through a pipe, and inspects both.
func TestRecordCommand(t *testing.T) {
	t.Parallel()
	url, js := newBus(t, server.Options{JetStream: true})
	for _, args := range [][]string{
		{"stream", "init", "--shards", "2"},
		{"simulate", "--hosts", "4", "--events-per-second", "20000", "--duration", "300ms", "--batch-age", "50ms"},
	} {
		if _, err := typed(t, append(args, "--nats.url", url)...); err != nil {
			t.Fatal(err)
		}
	}
	stored := uint64(0)
	for shard := range 2 {
		stream, err := js.Stream(t.Context(), schema.StreamName(shard))
		if err != nil {
			t.Fatal(err)
		}
		stored += stream.CachedInfo().State.Msgs
	}
	dir := t.TempDir()
	file, piped := filepath.Join(dir, "all.gtr"), filepath.Join(dir, "piped.gtr")
	all := []string{"record", "--nats.url", url, "--since", "1h", "--until", "0s", "-o"}
	out, err := typed(t, append(all, file)...)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "all.gtr: ", " of 2 shards\n")
	if out, err = typed(t, append(all, "-")...); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(piped, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = typed(t, "record", "inspect", file, piped, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(strings.NewReader(out))
	for _, path := range []string{file, piped} {
		var got record.Inspection
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got.File != path || got.Messages != stored || got.Bytes != info.Size() || len(got.Hosts) != 4 ||
			len(got.Shards) != 2 || got.Shards[0].State != "complete" || got.Events == 0 || len(got.Damages) != 0 {
			t.Errorf("%+v, want %d messages", got, stored)
		}
	}
	out, err = typed(t, "record", "inspect", file)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "selected  everything", "host      sim sim-0003", "SHARD", "complete")

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = typed(t, "record", "inspect", file)
	if app.ExitCode(err) != 4 || !strings.Contains(out, "\ndamaged: ") {
		t.Errorf("a damaged file: status %d, %v\n%s", app.ExitCode(err), err, out)
	}
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	url, _ := newBus(t, server.Options{JetStream: true})
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, bytes.Repeat([]byte("x"), 100), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := typed(t, "stream", "init", "--nats.url", url); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		want   string
		status int
		args   []string
	}{
		{"--output", 2, nil},
		{"--since", 2, []string{"-o", "x", "--since", "yesterday"}},
		{"--until", 2, []string{"-o", "x", "--until", "-1m"}},
		{"not before --until", 2, []string{"-o", "x", "--since", "1m", "--until", "2m"}},
		{"in the future", 2, []string{"-o", "x", "--since", "9999-01-02T15:04:05Z"}},
		{"set --since, too", 2, []string{"-o", "x", "--until", "0s"}},
		{"--kind", 2, []string{"-o", "x", "--kind", "memory,lauch"}},
		{"--job", 2, []string{"-o", "x", "--job", "["}},
		{"--job", 2, []string{"-o", "x", "--job", "a", "--kind", "host"}},
		{"--max-file-bytes", 2, []string{"-o", "-", "--max-file-bytes", "1GiB"}},
		{"max-file-bytes", 2, []string{"-o", "x", "--max-file-bytes", "much"}},
		{"--max-file-bytes 1: use at least 1MiB", 2, []string{"-o", "x", "--max-file-bytes", "1"}},
		{"--max-file-bytes 1000KiB: use at least 1MiB", 2, []string{"-o", "x", "--max-file-bytes", "1000KiB"}},
		{"not a recording", 1, []string{"-o", other}},
		{"no such file", 1, []string{"-o", "/no/such/directory/x"}},
	}
	for _, tt := range tests {
		_, err := typed(t, append([]string{"record", "--nats.url", url}, tt.args...)...)
		if app.ExitCode(err) != tt.status || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: status %d, %v, want %s", tt.args, app.ExitCode(err), err, tt.want)
		}
	}
	if _, err := typed(t, "record", "inspect"); app.ExitCode(err) != 2 {
		t.Errorf("inspect without a file: %v", err)
	}
	if _, err := typed(t, "record", "inspect", other); app.ExitCode(err) != 1 {
		t.Errorf("inspect of another file: %v", err)
	}
}

// TestRecordNamesAllFiles sums up several files in one line.
func TestRecordNamesAllFiles(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writeRecorded(&out, &record.Stats{Files: 3, Bytes: 3 << 20, Messages: 7, Events: 9, Shards: 2,
		FirstPath: "x-000004.gtr", Path: "x-000006.gtr"})
	want := "3 files, x-000004.gtr to x-000006.gtr: 3.00 MiB, 7 messages with 9 events of 2 shards\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s, want %s", out.String(), want)
	}
	out.Reset()
	writeRecorded(&out, &record.Stats{Continued: true, Files: 1, Path: "x.gtr", Shards: 2})
	want = "x.gtr: added to an earlier recording: 0 B, 0 messages with 0 events of 2 shards\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

// TestRecordOptions checks the meaning of the flags.
func TestRecordOptions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &app.Process{Stdout: io.Discard, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
	c := recordFlags{
		busCommand: busCommand{p: p}, output: "x", since: "90m", until: "2026-01-02T03:00:00+01:00",
		selectFlags: selectFlags{cluster: "c", host: "h", kinds: []string{"host", "copy"}}, maxFileBytes: 5 << 20,
	}
	o, err := c.options(now)
	if err != nil {
		t.Fatal(err)
	}
	want := record.Options{
		Path: "x", MaxFileBytes: 5 << 20, Since: now.Add(-90 * time.Minute),
		Until:     time.Date(2026, 1, 2, 2, 0, 0, 0, time.UTC),
		Selection: recording.Selection{Cluster: "c", Host: "h", Kinds: []schema.Kind{schema.KindHost, schema.KindCopy}},
	}
	o.Until = o.Until.UTC()
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
}

// TestRecordPageHasEveryKey compares the JSON keys with docs/answers.md.
func TestRecordPageHasEveryKey(t *testing.T) {
	explains(t, docsPage(t, "answers.md"), record.Inspection{}, record.Selected{}, record.Shard{}, record.HostName{},
		record.KindCount{}, record.State{}, record.Damage{})
}

// TestEmptyRecordingIsAWarning: record warns of a mistyped host, and ends with status 0.
func TestEmptyRecordingIsAWarning(t *testing.T) {
	t.Parallel()
	url, _ := newBus(t, server.Options{JetStream: true})
	if _, err := typed(t, "stream", "init", "--nats.url", url); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := &app.Process{Name: "gputap", Metrics: prometheus.NewRegistry(), Stdout: io.Discard, Stderr: io.Discard,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Args: []string{"record", "--nats.url", url, "--since", "1h", "--until", "0s", "--host", "nobody", "-o",
			filepath.Join(t.TempDir(), "empty.gtr")}}
	if err := run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	contains(t, log.String(), "no message matched its selection", `selection="host nobody"`, "since=20", "until=20")
}

// TestReadersOfARunLogNoErrors: the credentials of gputap run --nats-listen allow no request to delete a JetStream
// consumer, which nobody needs.
func TestReadersOfARunLogNoErrors(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.TempDir(), config.Embedded{Listen: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	nc, js, err := server.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: 1}); err != nil {
		t.Fatal(err)
	}
	h := consumertest.Memory(t, "gpu-1")
	h.Process(7, 1, "train").Alloc(7, 1<<20, 1<<20, 1000, 1)
	subject := schema.Subject(0, "test", "gpu-1", schema.KindMemory)
	if _, err := js.Publish(t.Context(), subject, h.Message()); err != nil {
		t.Fatal(err)
	}
	_, file := server.Listening()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	credential := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		credential[name] = value
	}
	at, err := url.Parse(credential["NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword(credential["NATS_USER"], credential["NATS_PASSWORD"])
	for _, args := range [][]string{
		{"record", "--since", "1h", "--until", "0s", "-o", filepath.Join(t.TempDir(), "run.gtr")},
		{"analyze", "leakage", "--since", "1h"},
	} {
		var log bytes.Buffer
		p := &app.Process{Name: "gputap", Metrics: prometheus.NewRegistry(), Stdout: io.Discard, Stderr: io.Discard,
			Log: slog.New(slog.NewTextHandler(&log, nil)), Args: append(args, "--nats.url", at.String())}
		if err := run(t.Context(), p); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%v logs\n%s", args, &log)
		}
	}
}
