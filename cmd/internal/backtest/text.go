package backtest

import (
	"fmt"
	"io"
	"strings"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/alert"
)

const maxAlerts = 50 // shown of each list

// write prints the rules, and the alerts that differ.
func (r *Result) write(to io.Writer) {
	if len(r.Rules) == 0 {
		fmt.Fprintln(to, "no rule found anything")
	} else {
		table := app.NewTable("RULE", "ALERTS", "CHANGED ALERTS", "SUPPRESSED", "CHANGED SUPPRESSED")
		for i := range r.Rules {
			one := &r.Rules[i]
			table.Row(one.Rule, text(one.Current.Alerts), text(one.Changed.Alerts), text(one.Current.Suppressed),
				text(one.Changed.Suppressed))
		}
		table.Write(to)
	}
	writeAlerts(to, "only the current configuration raises", r.OnlyCurrent)
	writeAlerts(to, "only the changed configuration raises", r.OnlyChanged)
	if len(r.Rules) > 0 && len(r.OnlyCurrent)+len(r.OnlyChanged) == 0 {
		fmt.Fprintln(to, "\nboth configurations raise the same alerts")
	}
	for _, one := range r.Missing {
		fmt.Fprintf(to, "\nincomplete: %s", one)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintln(to)
	}
}

// text returns counts as words.
func text(counts map[string]uint64) string {
	var parts []string
	for _, key := range ordered(counts) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[key], key))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func writeAlerts(to io.Writer, title string, list []alert.Alert) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s %s:\n", title, app.Plural(uint64(len(list)), "alert", "alerts"))
	for i := range list[:min(maxAlerts, len(list))] {
		a := &list[i]
		fmt.Fprintf(to, "  %s  %s  %s  %s/%d %s: %s\n", a.Time.UTC().Format("2006-01-02 15:04:05Z"), a.Severity, a.Rule,
			app.Printable(a.Host), a.PID, app.Printable(a.Comm), app.Printable(a.Message))
	}
	if more := len(list) - maxAlerts; more > 0 {
		fmt.Fprintf(to, "  … and %d more; -o json shows all\n", more)
	}
}
