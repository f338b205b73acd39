package main

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/simulate"
)

// TestSimulateCommand runs simulate against a nats-server, and checks its summary and its log.
func TestSimulateCommand(t *testing.T) {
	t.Parallel()
	url, _ := newBus(t, server.Options{JetStream: true})
	if _, err := typed(t, "stream", "init", "--nats.url", url); err != nil {
		t.Fatal(err)
	}
	log := t.TempDir() + "/truth.log"
	out, err := typed(t, "simulate", "--nats.url", url, "--hosts", "3", "--events-per-second", "30000",
		"--duration", "300ms",
		"--batch-age", "50ms", "--log", log, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got simulate.Stats
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	batches := 0
	for _, err := range simulate.ReadLog(log) {
		if err != nil {
			t.Fatal(err)
		}
		batches++
	}
	if got.Hosts != 3 || got.UnackedBatches != 0 || got.AckedEvents == 0 || got.Batches != uint64(batches) ||
		got.AckedBatches != got.Batches {
		t.Errorf("%+v, %d batches in the log", got, batches)
	}
	if out, err := typed(t, "simulate", "--nats.url", url, "--duration", "100ms"); err != nil ||
		!strings.Contains(out, "100 hosts") {
		t.Errorf("printed %q, %v", out, err)
	}
	if out, err := typed(t, "simulate", "--nats.url", url, "--hosts", "9", "--jobs", "1", "--slow-rank", "30%",
		"--lose", "20%", "--duration", "300ms",
		"--batch-age", "50ms"); err != nil || !strings.Contains(out, "9 hosts") {
		t.Errorf("jobs: printed %q, %v", out, err)
	}
	for want, args := range map[string][]string{
		"--nats.url": {"simulate", "--nats.url", ""},
		"--lose":     {"simulate", "--nats.url", url, "--lose", "1"},
		`"much": expected a share such as 0.2, or 20%`: {"simulate", "--nats.url", url, "--lose", "much"},
		"--hosts":             {"simulate", "--nats.url", url, "--hosts", "0"},
		"--connections":       {"simulate", "--nats.url", url, "--connections", "0"},
		"--events-per-second": {"simulate", "--nats.url", url, "--events-per-second", "NaN"},
		"at most 1e12":        {"simulate", "--nats.url", url, "--events-per-second", "1e13"},
		"--cluster":           {"simulate", "--nats.url", url, "--duration", "1ms", "--cluster", ""},
		"--resume":            {"simulate", "--nats.url", url, "--duration", "1ms", "--resume"},
		"--slow-rank: there":  {"simulate", "--nats.url", url, "--slow-rank", "30%"},
		"--leak-rank: there":  {"simulate", "--nats.url", url, "--leak-rank", "1MiB"},
		"no percentage":       {"simulate", "--nats.url", url, "--jobs", "1", "--slow-rank", "0.3"},
		"9 jobs have 72":      {"simulate", "--nats.url", url, "--jobs", "9", "--hosts", "71"},
		"--output":            {"simulate", "--nats.url", url, "-o", "xml"},
		"absent":              {"simulate", "--nats.url", url, "--profile", "absent"},
		"unknown flag":        {"simulate", "--fast"},
	} {
		if _, err := typed(t, args...); app.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v ends with %v, want an error with %s and status 2", args, err, want)
		}
	}
}

// TestUnwritableSummaryFails writes the summary to a closed pipe. Batches that are not acked take precedence.
func TestUnwritableSummaryFails(t *testing.T) {
	t.Parallel()
	gone, out := io.Pipe()
	gone.Close()
	for status, s := range map[int]simulate.Stats{1: {KeptUp: true}, 4: {UnackedBatches: 1}} {
		for _, json := range []bool{false, true} {
			if err := (&simulation{out: &output{json: json}}).conclude(out, s); app.ExitCode(err) != status {
				t.Errorf("%+v (JSON: %t) ends with %d, %v", s, json, app.ExitCode(err), err)
			}
		}
	}
}

// TestSimulatePageHasEveryKey compares the JSON keys with docs/simulate.md.
func TestSimulatePageHasEveryKey(t *testing.T) {
	page := docsPage(t, "simulate.md")
	for i := range reflect.TypeFor[simulate.Stats]().NumField() {
		if key := reflect.TypeFor[simulate.Stats]().Field(i).Tag.Get("json"); !strings.Contains(page, "`"+key+"`") {
			t.Errorf("docs/simulate.md does not explain %s", key)
		}
	}
}
