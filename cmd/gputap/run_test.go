//go:build bpf

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gputap/gputap/schema/metric"
)

func requireBPF(t *testing.T) {
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
		t.Fatal("GPUTAP_REQUIRE_BPF is set and this is not root")
	}
	t.Skip("uprobes need root")
}

func fixture(t *testing.T, name string) string {
	path, err := filepath.Abs("../../bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build stub", err)
	}
	return path
}

// gputap runs the binary and gives its standard output, standard error and exit status.
func gputap(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture(t, "gputap"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func runArgs(t *testing.T, more ...string) []string {
	return append([]string{"run", "--metrics-addr", "", "--library", fixture(t, "stub/libcuda.so.1")}, more...)
}

// TestRunJSON holds the keys of the last line to the contract, and their figures to the workload's.
func TestRunJSON(t *testing.T) {
	requireBPF(t)
	stdout, stderr, status := gputap(t, runArgs(t, "-o", "json", "--", fixture(t, "workload"), "launches")...)
	if status != 0 {
		t.Fatalf("ends with %d: %s", status, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var last map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"time", "final", "lost", "processes", "alerts", "counters"} {
		if _, ok := last[key]; !ok {
			t.Errorf("no key %s", key)
		}
	}
	if last["final"] != true {
		t.Error("the last line is not final")
	}
	processes := last["processes"].([]any)
	if len(processes) != 1 {
		t.Fatalf("%d processes", len(processes))
	}
	p := processes[0].(map[string]any)
	for _, key := range []string{
		"pid", "start", "comm", "uid", "container", "ended", "live_bytes", "live_allocations", "peak_bytes",
		"unfreed_at_exit_bytes", "unfreed_at_exit_allocations", "calls", "gpus", "launches", "copies",
	} {
		if _, ok := p[key]; !ok {
			t.Errorf("no key %s in a process", key)
		}
	}
	launches := p["launches"].(map[string]any)
	for _, kernel := range []string{"vectorAdd(float const*, float const*, float*, int)",
		"vectorMul(float const*, float const*, float*, int)"} {
		if launches[kernel] != 1000.0 {
			t.Errorf("%v launches of %s", launches[kernel], kernel)
		}
	}
	if call := p["calls"].(map[string]any)["cuLaunchKernel"].(map[string]any); call["ok"] != 1500.0 ||
		call["failed"] != 0.0 {
		t.Errorf("cuLaunchKernel: %v", call)
	}
	if p["comm"] != "workload" || p["ended"] != true || p["uid"] != 0.0 {
		t.Errorf("comm %v, ended %v, uid %v", p["comm"], p["ended"], p["uid"])
	}
}

// TestRunShowsTensors: with a command gputap watches PyTorch's allocator unless the user chose the features. The totals
// are those of the last and of the highest report.
func TestRunShowsTensors(t *testing.T) {
	requireBPF(t)
	command := []string{
		"--library", fixture(t, "stub/libc10.so"), "--", fixture(t, "workload"), "tensors", "--count", "500",
	}
	stdout, stderr, status := gputap(t, runArgs(t, append([]string{"-o", "json"}, command...)...)...)
	if status != 0 {
		t.Fatalf("ends with %d: %s", status, stderr)
	}
	want := map[string]map[string]uint64{}
	for line := range strings.Lines(stderr) {
		var device int
		var tid, ptr, allocated, reserved uint64
		var bytes int64
		if _, err := fmt.Sscanf(line, "block %d %d %v %d %d %d", &device, &tid, &ptr, &bytes, &allocated,
			&reserved); err != nil {
			continue
		}
		uuid := []string{"GPU-a0b1c2d3-0001-4217-8a5e-6f708192a3b4", "GPU-1f2e3d4c-1112-475b-9dc6-b7a8998a7b6c"}[device]
		if want[uuid] == nil {
			want[uuid] = map[string]uint64{}
		}
		d := want[uuid]
		d["allocated_bytes"], d["reserved_bytes"] = allocated, reserved
		d["peak_allocated_bytes"] = max(d["peak_allocated_bytes"], allocated)
		d["peak_reserved_bytes"] = max(d["peak_reserved_bytes"], reserved)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var last struct {
		Processes []struct {
			Comm  string
			Torch map[string]map[string]any
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if len(last.Processes) != 1 || len(want) != 2 || len(last.Processes[0].Torch) != 2 {
		t.Fatalf("processes %+v, want one with %v", last.Processes, want)
	}
	for uuid, totals := range want {
		got := last.Processes[0].Torch[uuid]
		for key, n := range totals {
			if got[key] != float64(n) {
				t.Errorf("%s of %s is %v, want %d", key, uuid, got[key], n)
			}
		}
		if got["blocks"] != 0.0 || got["verdict"] != "warming" {
			t.Errorf("%s: %v, want no block, since all were taken back", uuid, got)
		}
	}
	stdout, stderr, _ = gputap(t, runArgs(t, append([]string{"--features", "memory"}, command...)...)...)
	if strings.Contains(stdout, "torch") {
		t.Errorf("the report shows tensors though the user chose the features: %s%s", stdout, stderr)
	}
}

func TestRunEnds(t *testing.T) {
	requireBPF(t)
	tests := []struct {
		name   string
		args   []string
		status int
		stderr string
	}{
		{"with the command", runArgs(t, "--", "true"), 0, ""},
		{"with the command's status", runArgs(t, "--", "sh", "-c", "exit 41"), 41, "exit status 41"},
		{"with the command's signal", runArgs(t, "--", "sh", "-c", "kill -9 $$"), 137, "killed"},
		{"after a time", runArgs(t, "--for", "100ms"), 0, ""},
		{"and stops a command after a time", runArgs(t, "--for", "100ms", "--", "sleep", "60"), 130, "interrupt"},
		{"no such command", runArgs(t, "--", "/no/such/program"), 2, "/no/such/program"},
		{"no such library", []string{"run", "--library", "/no/such/lib"}, 1, "/no/such/lib"},
		{"a library of something else", []string{"run", "--metrics-addr", "", "--library", fixture(t, "workload")}, 1,
			"none of the CUDA driver's functions"},
		{"unknown feature", []string{"run", "--features", "memory,lauch"}, 2, `unknown "lauch"`},
		{"unknown flag", []string{"run", "--fro", "1s"}, 2, "--fro"},
		{"unknown command", []string{"rnu"}, 2, "rnu"},
		{"unknown output", []string{"run", "-o", "xml"}, 2, "table or json"},
		{"unknown scenario", []string{"demo", "--scenario", "x"}, 2, "leak3"},
		{"no such address", []string{"run", "--metrics-addr", "256.0.0.1:1"}, 2, "256.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := gputap(t, tt.args...)
			if status != tt.status || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("ends with %d, want %d; stderr %s; stdout %s", status, tt.status, stderr, stdout)
			}
		})
	}
}

// TestRunFindsTheCommandsLibrary checks that gputap finds a library on the search path of the command without
// --library.
func TestRunFindsTheCommandsLibrary(t *testing.T) {
	requireBPF(t)
	stdout, stderr, status := gputap(t, "run", "--metrics-addr", "", "-o", "json", "--",
		fixture(t, "workload"), "leak3")
	if status != 0 || !strings.Contains(stdout, `"unfreed_at_exit_bytes":8388608,"unfreed_at_exit_allocations":1`) {
		t.Errorf("ends with %d, stderr %s, stdout %s", status, stderr, stdout)
	}
}

// TestWithoutPrivilege checks that one line names the missing privilege and the remedy.
func TestWithoutPrivilege(t *testing.T) {
	requireBPF(t)
	for _, command := range []string{"demo", "run"} {
		dir := t.TempDir() // the checkout may be closed to others
		_ = os.Chmod(dir, 0o755)
		copied := filepath.Join(dir, "gputap")
		data, err := os.ReadFile(fixture(t, "gputap"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copied, command)
		cmd.Dir = "/"
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != 6 {
			t.Errorf("%s without root ends with %d: %s", command, got, out)
		}
		if lines := strings.Count(strings.TrimSpace(string(out)), "\n") + 1; lines != 1 ||
			!strings.Contains(string(out), "root") {
			t.Errorf("%s without root says\n%s", command, out)
		}
	}
}

// TestMetricsPage checks that promtool accepts the page, and that it has the metrics of the dashboards.
func TestMetricsPage(t *testing.T) {
	requireBPF(t)
	const address = "127.0.0.1:19477"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := []string{"run", "--metrics-addr", address, "--library", fixture(t, "stub/libcuda.so.1"), "--",
		fixture(t, "workload"), "rate", "--rate", "500", "--seconds", "4", "--keep"}
	cmd := exec.CommandContext(ctx, fixture(t, "gputap"), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"gputap_build_info{", "gputap_producer_events_total{op=\"alloc\"} ",
		"gputap_producer_events_lost_total{reason=\"bulk_ring\"} 0",
		"gputap_consumer_batches_total{", "gputap_producer_nats_connected 1", "gputap_producer_batch_events_bucket{",
		"gputap_cuda_memory_live_bytes{", "gputap_cuda_memory_allocs_total{", "gputap_leak_unmatched_frees_total{",
	}
	var page string
	for missing := true; missing && ctx.Err() == nil; {
		page = get("http://" + address + "/metrics")
		missing = slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(page, w) })
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("no %s on the page", w)
		}
	}
	checkFamilies(t, page)
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip("no promtool: apt-get install prometheus")
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(page)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v: %s", err, out)
	}
}

// checkFamilies compares a page of gputap run with the table. The producer shows all of its families, except those of
// an outbox.
func checkFamilies(t *testing.T, page string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range metric.Check(slices.Collect(maps.Values(families))) {
		t.Error(difference)
	}
	for _, f := range metric.Families {
		if f.Component == metric.Producer && families[f.Name] == nil && !strings.Contains(f.Name, "_outbox_") {
			t.Errorf("%s is in the table and not on the page", f.Name)
		}
	}
}

func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		time.Sleep(10 * time.Millisecond) // not there yet
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// TestRunLetsOthersRead: the credential that run writes is enough for a program of another kind.
func TestRunLetsOthersRead(t *testing.T) {
	requireBPF(t)
	store := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture(t, "gputap"), "run", "--metrics-addr", "", "--store", store,
		"--nats-listen", "127.0.0.1:0",
		"--library", fixture(t, "stub/libcuda.so.1"), "--", fixture(t, "workload"), "rate", "--rate", "500",
		"--seconds", "4", "--keep")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	credential := filepath.Join(store, "reader.env")
	for ctx.Err() == nil {
		if _, err := os.Stat(credential); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	follow := exec.CommandContext(ctx, "sh", "-c", `set -a; . "$1"; exec python3 ../../examples/follow.py --batches 1`,
		"sh", credential)
	out, err := follow.Output()
	if err != nil || !bytes.Contains(out, []byte(" alloc cuMemAlloc_v2 ")) {
		t.Errorf("follow.py ends with %v: %s", err, out)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
	if !strings.Contains(log.String(), credential) {
		t.Errorf("the log does not name %s:\n%s", credential, log.String())
	}
}
