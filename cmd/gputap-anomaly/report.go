package main

import (
	"fmt"
	"io"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/anomaly"
)

const shown = 20

// reporter remembers the alerts that the last report knew.
type reporter struct{ known map[anomaly.Alert]bool }

// report prints the newest of the alerts that were raised since the last report.
func (r *reporter) report(w io.Writer, shards []*anomaly.Detector) {
	known := map[anomaly.Alert]bool{}
	var raised []anomaly.Alert
	for _, shard := range shards {
		for _, a := range shard.Alerts() {
			if known[a] = true; !r.known[a] {
				raised = append(raised, a)
			}
		}
	}
	r.known = known
	if len(raised) == 0 {
		fmt.Fprintf(w, "no new alerts\n\n")
		return
	}
	t := app.NewTable("TIME", "SEVERITY", "RULE", "HOST", "PID", "COMMAND", "BYTES", "MESSAGE")
	for _, a := range raised[max(0, len(raised)-shown):] {
		t.Row(a.Time.UTC().Format(time.RFC3339), a.Severity, a.Rule, a.Host, a.PID, a.Comm, app.Amount(a.Bytes),
			a.Message)
	}
	t.Write(w)
	fmt.Fprintf(w, "%d new alerts\n\n", len(raised))
}
