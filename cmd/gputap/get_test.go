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
		stdout, _, status := gputap(t, "get", "processes", "--pid", pid, "--comm", "workload", "-o", "json")
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
	deadline := time.Now().Add(30 * time.Second)
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
	want := find(last.Processes)
	if got["unfreed_at_exit_bytes"] != float64(8<<20) || !reflect.DeepEqual(got, want) {
		t.Errorf("gputap get shows\n%v\ngputap run reports\n%v", got, want)
	}
}
