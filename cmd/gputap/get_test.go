//go:build bpf

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestGetShowsWhatRunReports asks a gputap run through its socket. The answer equals the last line of the run.
func TestGetShowsWhatRunReports(t *testing.T) {
	requireBPF(t)
	run := exec.Command(fixture(t, "gputap"), runArgs(t, "-o", "json", "--display-interval", "1h")...)
	var out, logs bytes.Buffer
	run.Stdout, run.Stderr = &out, &logs
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Process.Kill() }()
	pid := strconv.Itoa(run.Process.Pid)
	processes := func() (list []map[string]any) {
		stdout, _, status := gputap(t, "get", "processes", "--pid", pid, "-o", "json")
		var answer struct{ Items []map[string]any }
		if status == 0 && json.Unmarshal([]byte(stdout), &answer) != nil {
			t.Fatalf("not JSON: %s", stdout)
		}
		return answer.Items
	}
	var workload int
	find := func(list []map[string]any) map[string]any {
		for _, p := range list {
			if p["pid"] == float64(workload) {
				return p
			}
		}
		return nil
	}
	deadline := time.Now().Add(time.Minute)
	await := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s; %s", what, logs.String())
			}
		}
	}
	await("the socket answers", func() bool {
		_, _, status := gputap(t, "get", "hosts", "--pid", pid)
		return status == 0
	})
	load := exec.Command(fixture(t, "workload"), "leak3")
	if err := load.Run(); err != nil {
		t.Fatal(err)
	}
	workload = load.Process.Pid
	var got map[string]any
	await("the process has ended", func() bool {
		got = find(processes())
		return got != nil && got["ended"] == true
	})
	if err := run.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		t.Fatalf("%v: %s", err, logs.String())
	}
	var last struct{ Processes []map[string]any }
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(last.Processes, got) {
		delete(p, "heard") // a heartbeat may have come between the two
		if gaps, known := p["launch_gaps"].([]any); known && len(gaps) == 0 {
			p["launch_gaps"] = nil // who asks does not know the features
		}
	}
	want := find(last.Processes)
	if got["unfreed_at_exit_bytes"] != float64(8<<20) || !reflect.DeepEqual(got, want) {
		t.Errorf("gputap get shows\n%v\ngputap run reports\n%v", got, want)
	}
}

// TestRunStoresItsAlerts: a program runs out of memory and ends. Its alert is in the stream of the run and in its
// report.
func TestRunStoresItsAlerts(t *testing.T) {
	requireBPF(t)
	run := exec.Command(fixture(t, "gputap"), runArgs(t, "-o", "json", "--display-interval", "1h")...)
	var out, logs bytes.Buffer
	run.Stdout, run.Stderr = &out, &logs
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Process.Kill() }()
	pid := strconv.Itoa(run.Process.Pid)
	deadline := time.Now().Add(time.Minute)
	history := func(want int) (items []map[string]any) {
		for len(items) < want || items == nil {
			stdout, _, status := gputap(t, "get", "alerts", "--since", "1h", "--comm", "workload", "--pid", pid, "-o",
				"json")
			var answer struct{ Items []map[string]any }
			if status == 0 && json.Unmarshal([]byte(stdout), &answer) != nil {
				t.Fatalf("not JSON: %s", stdout)
			}
			if items = answer.Items; time.Now().After(deadline) {
				t.Fatalf("%d alerts, want %d; %s", len(items), want, logs.String())
			}
		}
		return items
	}
	history(0) // the socket answers, and the probes are attached
	load := exec.Command(fixture(t, "workload"), "hard-alloc-fail")
	if err := load.Run(); err != nil {
		t.Fatal(err)
	}
	got := history(1)
	if err := run.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		t.Fatalf("%v: %s", err, logs.String())
	}
	var last struct{ Alerts []map[string]any }
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0]["pid"] != float64(load.Process.Pid) || got[0]["rule"] != "oom" ||
		got[0]["state"] != "firing" {
		t.Errorf("the stream has %v", got)
	}
	if !reflect.DeepEqual(got, last.Alerts) {
		t.Errorf("gputap get shows\n%v\ngputap run reports\n%v", got, last.Alerts)
	}
}
