package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// TestIdleRunFails: each thing that a run is for, left out, is an error, but where the options leave it out.
func TestIdleRunFails(t *testing.T) {
	type done struct {
		takeovers, hosts, withheld, repeated, zombies int
	}
	all := done{takeovers: 1, hosts: 3, withheld: 1, repeated: 1, zombies: 1}
	without := func(change func(d *done)) done {
		d := all
		change(&d)
		return d
	}
	for _, row := range []struct {
		name    string
		options options
		done    done
		want    string // "": no error
	}{
		{"all", options{}, all, ""},
		{"no takeover", options{}, without(func(d *done) { d.takeovers = 0 }), "no shard was taken over"},
		{"no takeover of older programs", options{from: "x"}, without(func(d *done) { d.takeovers = 0 }), ""},
		{"no takeover, and nothing else is tried", options{killsOnly: true}, without(func(d *done) { d.takeovers = 0 }), "no shard was taken over"},
		{"kills only", options{killsOnly: true}, without(func(d *done) { d.repeated, d.zombies = 0, 0 }), ""},
		{"a host is missing", options{}, without(func(d *done) { d.hosts-- }), "2 hosts published, there were to be 3"},
		{"nothing withheld", options{}, without(func(d *done) { d.withheld = 0 }), "nothing was withheld"},
		{"nothing repeated", options{}, without(func(d *done) { d.repeated = 0 }), "nothing was stored twice"},
		{"no zombie", options{}, without(func(d *done) { d.zombies = 0 }), "no zombie tried to write"},
	} {
		f := fleet{options: row.options, dir: t.TempDir(), fence: &fence{late: row.done.zombies}}
		f.hosts = all.hosts
		p := &cluster.Process{Name: "leak-0", Dir: f.dir}
		began := time.Now()
		log := said(began.Add(-time.Second), taken)
		if row.done.takeovers > 0 {
			log += said(began.Add(time.Second), taken) + said(began.Add(2*time.Second), folded)
		}
		if err := os.WriteFile(p.Log(), []byte(log), 0o644); err != nil {
			t.Fatal(err)
		}
		f.consumers, f.kills = append(f.consumers, p), []kill{{p.Name, began}}
		truth := newTruth()
		truth.kept = row.done.withheld
		for i := range row.done.hosts {
			truth.boots[host{"c", string(rune('a' + i))}] = "boot"
		}
		err := f.vacuous(truth, uint64(row.done.repeated))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}
