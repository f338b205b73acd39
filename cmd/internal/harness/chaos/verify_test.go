package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// TestRunMustExerciseEverything: each thing that a run must exercise is an error if it did not happen.
func TestRunMustExerciseEverything(t *testing.T) {
	type done struct {
		takeovers, hosts, withheld, repeated, fenced int
	}
	all := done{takeovers: 1, hosts: 3, withheld: 1, repeated: 1, fenced: 1}
	without := func(change func(d *done)) done {
		d := all
		change(&d)
		return d
	}
	for _, row := range []struct {
		name    string
		options options
		done    done
		want    string // empty: no error
	}{
		{"everything", options{}, all, ""},
		{"no takeover", options{}, without(func(d *done) { d.takeovers = 0 }), "no shard was taken over"},
		{"no takeover of older programs", options{from: "x"}, without(func(d *done) { d.takeovers = 0 }),
			"no shard was taken over"},
		{"no takeover, kills only", options{killsOnly: true}, without(func(d *done) { d.takeovers = 0 }),
			"no shard was taken over"},
		{"kills only", options{killsOnly: true}, without(func(d *done) { d.repeated, d.fenced = 0, 0 }), ""},
		{"a host is missing", options{}, without(func(d *done) { d.hosts-- }), "2 of 3 hosts published"},
		{"nothing withheld", options{}, without(func(d *done) { d.withheld = 0 }), "no batch was withheld"},
		{"nothing repeated", options{}, without(func(d *done) { d.repeated = 0 }), "no batch was stored twice"},
		{"no fenced commit", options{}, without(func(d *done) { d.fenced = 0 }), "no fenced instance tried to commit"},
	} {
		w, err := cluster.NewWorkspace(t.TempDir(), "chaos", io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		f := fleet{Workspace: w, options: row.options, commits: &commits{seen: seen{fenced: row.done.fenced}}}
		f.hosts = all.hosts
		p := &cluster.Process{Name: "leak-0", Dir: f.Dir}
		began := time.Now()
		log := logLine(began.Add(-time.Second), acquired)
		if row.done.takeovers > 0 {
			log += logLine(began.Add(time.Second), acquired) + logLine(began.Add(2*time.Second), folded)
		}
		if err := os.WriteFile(p.Log(), []byte(log), 0o644); err != nil {
			t.Fatal(err)
		}
		f.consumers = append(f.consumers, p)
		f.kills = []shardEvent{{process: p.Name, what: killed, at: began}}
		truth := newTruth()
		truth.withheld = row.done.withheld
		for i := range row.done.hosts {
			truth.boots[host{"c", string(rune('a' + i))}] = "boot"
		}
		err = f.verifyExercised(truth, uint64(row.done.repeated))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// TestForbiddenLinesAreFaults: crashes, and states or batches that cannot be used.
func TestForbiddenLinesAreFaults(t *testing.T) {
	for _, row := range []struct {
		log  string
		want int
	}{
		{"level=INFO msg=\"shard acquired\" reason=\"panic: elsewhere\"\n", 0},
		{"level=INFO msg=started\npanic: index out of range\n\ngoroutine 1\n", 1},
		{"level=ERROR msg=\"fold panicked\" shard=1\nfatal error: concurrent map writes\n", 2},
		{"level=WARN msg=\"checkpoint unusable; rebuilding from the stream\"\n", 1},
	} {
		if got := forbidden.FindAllString(row.log, -1); len(got) != row.want {
			t.Errorf("%q: found %q, want %d lines", row.log, got, row.want)
		}
	}
}
