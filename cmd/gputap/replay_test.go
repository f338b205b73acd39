package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
)

// simulated returns the URL of a bus on which a fleet was simulated.
func simulated(t *testing.T, shards string) (url string) {
	t.Helper()
	url, _ = newBus(t, server.Options{JetStream: true})
	for _, args := range [][]string{
		{"stream", "init", "--shards", shards},
		{"simulate", "--hosts", "4", "--events-per-second", "20000", "--duration", "300ms", "--batch-age", "50ms"},
	} {
		if _, err := typed(t, append(args, "--nats.url", url)...); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

// recorded returns the path of a recording of a bus.
func recorded(t *testing.T, url string, flags ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "all.gtr")
	args := append([]string{"record", "--nats.url", url, "--since", "1h", "--until", "0s", "-o", path}, flags...)
	if _, err := typed(t, args...); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReplayCommand replays a file and the same range of the bus: the reports are equal. Then it replays the file to
// another bus.
func TestReplayCommand(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	url := simulated(t, "2")
	file := recorded(t, url)
	text, err := typed(t, "replay", file)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, text, "4 processes running", "lost 0", "cuLaunchKernel")
	ofFile, err := typed(t, "replay", file, "-o", "json", "--speed", "10")
	if err != nil {
		t.Fatal(err)
	}
	ofBus, err := typed(t, "replay", "--nats.url", url, "--since", "1h", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if ofFile != ofBus {
		t.Errorf("the report of the file:\n%s\nof the bus:\n%s", ofFile, ofBus)
	}
	var s report.Snapshot
	if err := json.Unmarshal([]byte(ofFile), &s); err != nil || !s.Final || len(s.Hosts) != 4 || len(s.Processes) < 4 {
		t.Errorf("%v: final is %t, %d hosts", err, s.Final, len(s.Hosts))
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
	if text, err = typed(t, "replay", file, "--consumers", "launch", "--host", "sim-0001"); err != nil {
		t.Fatal(err)
	}
	contains(t, text, "1 process running", "cuLaunchKernel")
	if strings.Contains(text, "cuMemAlloc") {
		t.Errorf("the consumer leak was not chosen:\n%s", text)
	}

	target, _ := newBus(t, server.Options{JetStream: true})
	if _, err := typed(t, "replay", file, "--to", target); err == nil || !strings.Contains(err.Error(), "stream init") {
		t.Errorf("without streams: %v", err)
	}
	if _, err := typed(t, "stream", "init", "--nats.url", target, "--shards", "3"); err != nil {
		t.Fatal(err)
	}
	if text, err = typed(t, "replay", file, "--to", target); err != nil {
		t.Fatal(err)
	}
	contains(t, text, " messages acked; 0 retries\n")
	var reports [2]string
	for i, path := range []string{file, recorded(t, target)} {
		if reports[i], err = typed(t, "replay", path, "--rows", "0", "--consumers", "leak,bandwidth"); err != nil {
			t.Fatal(err)
		}
		reports[i] = reports[i][strings.Index(reports[i], "live"):] // behind the time
	}
	if reports[0] != reports[1] {
		t.Errorf("the report of the recording:\n%s\nof the bus to which it was replayed:\n%s", reports[0], reports[1])
	}
	if _, err := typed(t, "replay", file, "--to", target); app.ExitCode(err) != 1 ||
		!strings.Contains(err.Error(), "gputap stream rm") {
		t.Errorf("a second time: status %d, %v", app.ExitCode(err), err)
	}
}

// TestReplayDamaged reports on a damaged recording, and ends with 4.
func TestReplayDamaged(t *testing.T) {
	t.Parallel()
	file := recorded(t, simulated(t, "1"))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := typed(t, "replay", file)
	if app.ExitCode(err) != 4 || !strings.Contains(err.Error(), "damaged") || !strings.Contains(out, "lost 0") {
		t.Errorf("status %d, %v\n%s", app.ExitCode(err), err, out)
	}
}

// TestReplayWithoutMessages ends with 4 and names the reason. The time of the report is that of the file.
func TestReplayWithoutMessages(t *testing.T) {
	t.Parallel()
	url := simulated(t, "1")
	file, dir := recorded(t, url), t.TempDir()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head := filepath.Join(dir, "head.gtr") // what a kill leaves that comes at once
	if err := os.WriteFile(head, data[:18], 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"the recording is empty", []string{head}},
		{"the recording is empty", []string{head, "-o", "json"}},
		{"the recording is empty", []string{head, "--host", "typo"}},
		{"the recording is empty", []string{head, "--to", url}},
		{"no message is selected by --host typo --kind copy,sync",
			[]string{file, "--host", "typo", "--kind", "copy,sync"}},
		{"no message is selected by --job typo", []string{file, "--job", "typo", "-o", "json"}},
	} {
		out, err := typed(t, append([]string{"replay"}, tt.args...)...)
		if app.ExitCode(err) != 4 || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%v: status %d, %v, want %s", tt.args, app.ExitCode(err), err, tt.want)
		}
		if out == "" || strings.Contains(out, "0001-01-01") {
			t.Errorf("%v: %s", tt.args, out)
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte(strings.Repeat("x", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want   string
		status int
		args   []string
	}{
		{"--since", 2, nil},
		{"unexpected argument \"b\"", 2, []string{"a", "b"}},
		{"not with a recording", 2, []string{"x", "--since", "1m"}},
		{"not before --until", 2, []string{"--since", "1m", "--until", "2m"}},
		{"not in the past", 2, []string{"--since", "1m", "--until", "2999-01-02T03:04:05Z"}},
		{"--since", 2, []string{"--since", "yesterday"}},
		{"--speed", 2, []string{"x", "--speed", "-1"}},
		{"--speed", 2, []string{"x", "--speed", "NaN"}},
		{"--speed 1e-300: use 0, or 0.001 to 1e9", 2, []string{"x", "--speed", "1e-300"}},
		{"--max-idle", 2, []string{"x", "--max-idle", "-1s"}},
		{"--consumers", 2, []string{"x", "--consumers", "leak,lauch"}},
		{"--kind", 2, []string{"x", "--kind", "lauch"}},
		{"--leak-window", 2, []string{"x", "--leak-window", "1ms"}},
		{"no such file", 1, []string{"/no/such/file"}},
		{"not a recording", 1, []string{other}},
		{"connect to NATS", 5, []string{"--since", "1m", "--nats.url", "nats://127.0.0.1:1"}},
	} {
		_, err := typed(t, append([]string{"replay"}, tt.args...)...)
		if app.ExitCode(err) != tt.status || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: status %d, %v, want %s", tt.args, app.ExitCode(err), err, tt.want)
		}
	}
}
