package backtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
)

const exitStatus = `
Exit status: 0 success; 1 an error; 2 wrong flags or configuration; 4 the data are incomplete, and the answer says what
is missing; 5 NATS is unreachable.`

// Command returns gputap anomaly.
func Command(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "anomaly", Short: "Try other thresholds of the alert rules on a recording",
		Long:    "Try other thresholds of the alert rules on a recording.\n" + exitStatus,
		Example: "  gputap anomaly backtest run.gputap --set " + example,
	}
	cmd.AddCommand(backtestCommand(p))
	return cmd
}

// question is one command line.
type question struct {
	p *app.Process
	source.Range
	file, out        string
	set              []string
	current, changed *variant
}

func backtestCommand(p *app.Process) *cobra.Command {
	q := &question{p: p}
	cmd := &cobra.Command{
		Use: "backtest" + source.Argument, Short: "Compare the alerts of a recording with those of other thresholds",
		Long: `Run the alert rules of gputap-anomaly and gputap-leak over a recording, once with the current configuration and once
with a changed one, and compare the alerts. The current configuration is that of the defaults and the variables
(GPUTAP_ANOMALY__…, GPUTAP_LEAK__…). --config and --set change keys of it; gputap config print anomaly lists them.
With --since, only alerts from that time on are shown; of a FILE, the rules also read what is before.
The rule host_silent does not run: it reads the wall clock.
` + exitStatus,
		Example: `  gputap anomaly backtest run.gputap --set ` + example + `
  gputap anomaly backtest run.gputap --set anomaly.rules.alloc_size.factor=4 --set leak.window=30s -o json
  gputap anomaly backtest run.gputap --config new.yaml --since 2026-11-24T03:00:00Z`,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return q.parse() },
		RunE:    func(cmd *cobra.Command, args []string) error { return q.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&q.set, "set", nil, "change a key of the configuration: KEY=VALUE")
	flags.StringVar(&q.file, "config", "", "YAML file with the changed configuration")
	q.AddTimeFlags(cmd)
	flags.StringVarP(&q.out, "output", "o", "text", "output format: text, json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"},
		cobra.ShellCompDirectiveNoFileComp))
	q.AddBusFlags(cmd)
	return cmd
}

// parse checks the flags.
func (q *question) parse() error {
	if q.out != "text" && q.out != "json" {
		return app.Usage(fmt.Errorf("--output %q: use text, json", q.out))
	}
	return q.Parse()
}

func (q *question) run(ctx context.Context, args []string) error {
	current, changed, err := load(q.file, q.set)
	if err != nil {
		return err
	}
	s, err := q.Open(ctx, q.p, args)
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := newRun(ctx, s, q.Since, q.Until)
	if err != nil {
		return fmt.Errorf("backtest %s: %w", s.Name, err)
	}
	q.current, q.changed = r.variant(current, q.p.Log), r.variant(changed, q.p.Log)
	missing, err := r.read(ctx)
	if err != nil {
		return fmt.Errorf("backtest %s: %w", s.Name, err)
	}
	result := compare(q.current, q.changed, missing)
	if q.out == "json" {
		out := json.NewEncoder(q.p.Stdout)
		out.SetEscapeHTML(false)
		err = out.Encode(result)
	} else {
		out := &app.Output{Writer: q.p.Stdout}
		result.write(out)
		err = out.Err
	}
	if !result.Complete {
		err = cmp.Or(err, app.Incomplete(errors.New("the data are incomplete: "+strings.Join(result.Missing, "; "))))
	}
	return err
}
