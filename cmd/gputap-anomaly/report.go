package main

import (
	"fmt"
	"io"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/alert"
)

const shown = 20

// change is an alert that fired, or that cleared.
type change struct{ id, state string }

// reporter remembers the alerts that the last report knew.
type reporter struct{ known map[change]bool }

// report prints the newest of the alerts that fired or cleared since the last report.
func (r *reporter) report(w io.Writer, shards []*fold.Anomalies) {
	known := map[change]bool{}
	var changed []alert.Alert
	for _, shard := range shards {
		for _, a := range shard.Alerts() {
			c := change{a.ID, a.State}
			if known[c] = true; !r.known[c] {
				changed = append(changed, a)
			}
		}
	}
	r.known = known
	if len(changed) == 0 {
		fmt.Fprintf(w, "no new alerts\n\n")
		return
	}
	t := app.NewTable("TIME", "STATE", "SEVERITY", "RULE", "HOST", "PID", "COMMAND", "MESSAGE")
	for _, a := range changed[max(0, len(changed)-shown):] {
		t.Row(a.Time.UTC().Format(time.RFC3339), a.State, a.Severity, a.Rule, a.Host, a.PID, a.Comm, a.Message)
	}
	t.Write(w)
	fmt.Fprintf(w, "%s fired or cleared\n\n", app.Plural(uint64(len(changed)), "alert", "alerts"))
}
