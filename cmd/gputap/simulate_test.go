package main

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/simulate"
)

// TestSimulateCommand: from streams to the summary, against a nats-server.
func TestSimulateCommand(t *testing.T) {
	t.Setenv("GPUTAP_NATS__URL", "")
	url := serve(t)
	if _, err := typed(t, "stream", "init", "--nats.url", url); err != nil {
		t.Fatal(err)
	}
	log := t.TempDir() + "/truth.log"
	out, err := typed(t, "simulate", "--nats.url", url, "--hosts", "3", "--events-per-second", "30000", "--duration", "1s",
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
	if got.Hosts != 3 || got.UnackedBatches != 0 || got.AckedEvents == 0 || got.Batches != uint64(batches) || got.AckedBatches != got.Batches {
		t.Errorf("%+v, %d batches in the log", got, batches)
	}
	if out, err := typed(t, "simulate", "--nats.url", url, "--duration", "300ms"); err != nil || !strings.Contains(out, "100 hosts") {
		t.Errorf("says %q, %v", out, err)
	}
	for want, args := range map[string][]string{
		"--nats.url":          {"simulate"},
		"--lose":              {"simulate", "--nats.url", url, "--lose", "1"},
		"--hosts":             {"simulate", "--nats.url", url, "--hosts", "0"},
		"--connections":       {"simulate", "--nats.url", url, "--connections", "0"},
		"--events-per-second": {"simulate", "--nats.url", url, "--events-per-second", "NaN"},
		"at most 1e12":        {"simulate", "--nats.url", url, "--events-per-second", "1e13"},
		"--cluster":           {"simulate", "--nats.url", url, "--duration", "1ms", "--cluster", ""},
		"--resume":            {"simulate", "--nats.url", url, "--duration", "1ms", "--resume"},
		"--output":            {"simulate", "--nats.url", url, "-o", "xml"},
		"absent":              {"simulate", "--nats.url", url, "--profile", "absent"},
		"unknown flag":        {"simulate", "--fast"},
	} {
		if _, err := typed(t, args...); app.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%v ends with %v, want a word of %s and status 2", args, err, want)
		}
	}
}

// TestSummaryThatCannotBeWritten, as to a full disk, is an error; that not all is stored is the worse one.
func TestSummaryThatCannotBeWritten(t *testing.T) {
	gone, out := io.Pipe()
	gone.Close()
	for status, s := range map[int]simulate.Stats{1: {KeptUp: true}, 4: {UnackedBatches: 1}} {
		for _, output := range []string{"table", "json"} {
			if err := (&simulation{output: output}).conclude(out, s); app.ExitCode(err) != status {
				t.Errorf("%s of %+v ends with %d, %v", output, s, app.ExitCode(err), err)
			}
		}
	}
}

// typed runs a command as if it was typed.
func serve(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
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
	return s.ClientURL()
}

// TestSimulatePageHasEveryKey: the contract and the code say the same.
func TestSimulatePageHasEveryKey(t *testing.T) {
	page := docsPage(t, "simulate.md")
	for i := range reflect.TypeFor[simulate.Stats]().NumField() {
		if key := reflect.TypeFor[simulate.Stats]().Field(i).Tag.Get("json"); !strings.Contains(page, "`"+key+"`") {
			t.Errorf("docs/simulate.md does not explain %s", key)
		}
	}
}
