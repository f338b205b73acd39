package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
)

func statusCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Is the pipeline healthy: hosts, losses, shards, checkpoints and alerts in ten lines",
		Long: `Ask all consumers how they are doing. A fleet is unhealthy if a host is silent for 30 s, a shard does not answer or
lags by 1,000 messages, a checkpoint is older than 5 minutes, gputap-leak does not run, or no host was ever heard of.
Losses and alerts do not make a fleet unhealthy, because they stay after their cause is gone; the verdict names losses.
--cluster and --host select hosts and alerts; the lines of the consumers are about all hosts.

With --nats.url (or GPUTAP_NATS__URL) the consumers of that bus answer, else the newest gputap run of this host.

Exit status: 0 healthy; 1 an error; 2 wrong flags; 3 unhealthy; 5 NATS is unreachable; 6 privileges are missing.`,
		Example: `  gputap status --nats.url nats://bus:4222
  gputap status --cluster prod
  gputap status -o json | python3 -m json.tool`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	q := newQuestion(p, cmd)
	q.addHostFilters(cmd)
	format := addFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := format.validate(); err != nil {
			return err
		}
		return q.with(cmd.Context(), func(ctx context.Context, fleet *answer.Fleet) error {
			var s *answer.Status
			err := q.ask(ctx, func(ctx context.Context) (err error) {
				s, err = fleet.Status(ctx, q.Filter)
				return err
			})
			if err != nil {
				return err
			}
			if err := format.write(p.Stdout, s, func(w io.Writer) { writeStatus(w, s) }); err != nil {
				return err
			}
			if !s.Healthy {
				return app.Findings(errors.New("unhealthy: " + strings.Join(s.Problems, "; ")))
			}
			return nil
		})
	}
	return cmd
}

const maxNamed = 3 // silent hosts in the text

func writeStatus(w io.Writer, s *answer.Status) {
	line := func(title, format string, args ...any) {
		fmt.Fprintf(w, "%-10s "+format+"\n", append([]any{title}, args...)...)
	}
	if s.Hosts == nil {
		line("hosts", "unknown without gputap-leak")
	} else {
		line("hosts", "%d of %d heard in the last 30 s%s%s", s.Hosts.Heard, s.Hosts.Known, silentText(s),
			missingText(s.Hosts.Missing()))
		line("lost", "%s", report.LostText(s.Lost))
	}
	for i := range s.Folds {
		f := &s.Folds[i]
		switch {
		case !f.Running() && f.MovingText() != "":
			line(f.Fold, "no shard answers yet")
			continue
		case !f.Running():
			line(f.Fold, "not running")
			continue
		}
		line(f.Fold, "%s", foldText(f, s.Time))
		if err := f.Incomplete(); err != nil {
			line("", "%v", err)
		}
	}
	line("alerts", "%s", alertsText(s))
	line("verdict", "%s", verdictText(s))
}

func foldText(f *answer.FoldHealth, now time.Time) string {
	text := fmt.Sprintf("%d of %d shards answer", f.Answered, f.Shards)
	if f.Lag == nil {
		return text
	}
	text += fmt.Sprintf(", from %s; lag %s", app.Plural(uint64(f.Instances), "instance", "instances"),
		app.Plural(*f.Lag, "message", "messages"))
	if f.Checkpoint != nil {
		text += "; oldest checkpoint " + age(f.Checkpoint, now)
	}
	if *f.Invalid > 0 {
		text += fmt.Sprintf("; %d batches unusable", *f.Invalid)
	}
	return text
}

func verdictText(s *answer.Status) string {
	verdict := "unhealthy: " + strings.Join(s.Problems, "; ")
	switch {
	case s.Healthy && len(s.Lost) > 0:
		verdict = "healthy, but events were lost: " + report.LostText(s.Lost)
	case s.Healthy:
		verdict = "healthy"
	}
	if absent := s.NotRunning(); len(absent) > 0 && s.MovingText() == "" {
		verdict += "; not running: " + strings.Join(absent, ", ")
	}
	return verdict
}

func alertsText(s *answer.Status) string {
	for i := range s.Folds {
		if f := &s.Folds[i]; f.Fold == "anomaly" && f.Lag == nil {
			return "unknown without gputap-anomaly; gputap get alerts --since 1h shows the stored ones"
		}
	}
	text := "those of gputap-leak are unknown"
	if s.Alerts.Recent != nil {
		text = fmt.Sprintf("%d in the last hour", *s.Alerts.Recent)
	}
	if a := s.Alerts.Newest; a != nil {
		text += fmt.Sprintf("; newest %s ago: %s", age(&a.Time, s.Time), a.Subject())
	}
	return text
}

// missingText says that the hosts of some shards are unknown.
func missingText(shards []int) string {
	switch len(shards) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; those of shard %d are unknown", shards[0])
	}
	return "; those of shards " + strings.Trim(strings.ReplaceAll(fmt.Sprint(shards), " ", ", "), "[]") + " are unknown"
}

func silentText(s *answer.Status) string {
	hosts := s.Hosts
	if len(hosts.Silent) == 0 {
		return ""
	}
	var names []string
	for i := range hosts.Silent[:min(maxNamed, len(hosts.Silent))] {
		h := &hosts.Silent[i]
		names = append(names, fmt.Sprintf("%s (%s)", h.Host, age(&h.Heard, s.Time)))
	}
	if more := len(hosts.Silent) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return "; silent: " + strings.Join(names, ", ")
}
