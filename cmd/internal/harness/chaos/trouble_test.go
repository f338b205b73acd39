package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// TestEndAsksForStatusZero: a program that fails when it stops, or that is not there to be stopped, is an error that says why.
func TestEndAsksForStatusZero(t *testing.T) {
	for _, row := range []struct{ name, script, want string }{
		{"in order", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", ""},
		{"with a status", "trap 'echo panic: at the end; exit 3' TERM; echo ready; while :; do sleep 0.01; done", "p was asked to end: exit status 3: panic: at the end"},
		{"crashed before", "echo ready; echo 'fatal error: early'; exit 2", "p has ended by itself: exit status 2: fatal error: early"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := &cluster.Process{Name: "p", Dir: t.TempDir(), Args: []string{"/bin/sh", "-c", row.script}}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			deadline := time.Now().Add(time.Minute)
			for text := ""; !strings.Contains(text, "ready") || strings.Contains(row.script, "early") && p.Running(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("it says %q", text)
				}
				data, err := os.ReadFile(p.Log())
				if err != nil {
					t.Fatal(err)
				}
				text = string(data)
			}
			switch err := end(p); {
			case row.want == "" && err != nil:
				t.Error(err)
			case row.want != "" && (err == nil || !strings.HasPrefix(err.Error(), row.want)):
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}
