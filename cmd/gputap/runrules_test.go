//go:build bpf

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRunObeysRules: one allocation of the workload is odd. The keys of the rule decide whether gputap run says so.
func TestRunObeysRules(t *testing.T) {
	requireBPF(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("anomaly: {rules: {alloc_size: {min_bytes: 90GiB}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string][]string{
		"": {"alloc_size warning"}, "--anomaly.rules.alloc_size.mode observe": {"alloc_size info"},
		"--anomaly.rules.alloc_size.mode off": nil, "--anomaly.exclude.comm workl*": nil, "--config " + file: nil,
	} {
		args := append(strings.Fields(flags), "-o", "json", "--", fixture(t, "workload"), "anomaly")
		stdout, stderr, status := gputap(t, runArgs(t, args...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var last struct {
			Alerts []struct{ Rule, Severity string } `json:"alerts"`
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || status != 0 {
			t.Fatalf("%q: %v, status %d: %s", flags, err, status, stderr)
		}
		var got []string
		for _, a := range last.Alerts {
			got = append(got, a.Rule+" "+a.Severity)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: alerts %v, want %v", flags, got, want)
		}
	}
}
