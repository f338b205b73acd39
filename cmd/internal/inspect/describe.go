package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
)

const maxLargest = 20 // allocations of a process

func describeCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe", Short: "Show everything about one process",
		Long: `Show everything that the consumers of a fleet, or a gputap run of this host, know about one process.

` + exitStatus,
		Example: `  gputap describe process gpu-1/4242 --nats.url nats://bus:4222
  gputap describe process 4242`,
	}
	q := newQuestion(p, cmd)
	process := &cobra.Command{
		Use: "process [CLUSTER/][HOST/]PID", Short: "Show memory, calls, kernels and copies of one process",
		Long: `Show memory, the largest 20 allocations, calls, threads, kernels and copies of one process, from gputap-leak, and
from gputap-launch and gputap-bandwidth if they run. Without a host, all processes with the PID are shown. PIDs are
reused: an ended process may have the PID of a running one.

With --nats.url (or GPUTAP_NATS__URL) the consumers of that bus answer, else the newest gputap run of this host.

Exit status: 0 success; 1 there is no such process, or another error; 2 wrong flags; 4 a shard did not answer;
5 NATS is unreachable; 6 privileges are missing.`,
		Example: `  gputap describe process gpu-1/4242 --nats.url nats://bus:4222
  gputap describe process 4242 -o json`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	q.addFilters(process)
	format := addFormat(process, "text", "json")
	process.RunE = func(cmd *cobra.Command, args []string) error {
		if err := q.parse(args[0]); err != nil {
			return app.Usage(err)
		}
		if err := format.validate(); err != nil {
			return err
		}
		return q.with(cmd.Context(), func(ctx context.Context, fleet *answer.Fleet) error {
			return q.describe(ctx, fleet, args[0], format)
		})
	}
	cmd.AddCommand(process)
	return cmd
}

// parse sets the filter to a process: CLUSTER/HOST/PID, HOST/PID or PID.
func (q *question) parse(name string) error {
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	pid, err := strconv.ParseUint(parts[last], 10, 32)
	if err != nil || pid == 0 || last > 2 || slices.Contains(parts, "") {
		return fmt.Errorf("process %q: not a process; use CLUSTER/HOST/PID, HOST/PID or PID", name)
	}
	q.PID = uint32(pid)
	if last >= 1 {
		q.Host = parts[last-1]
	}
	if last == 2 {
		q.Cluster = parts[0]
	}
	return nil
}

func (q *question) describe(ctx context.Context, fleet *answer.Fleet, name string, format *format) error {
	var list *answer.List[*report.Process]
	err := q.ask(ctx, func(ctx context.Context) (err error) {
		list, err = fleet.Describe(ctx, q.Filter, maxLargest)
		return err
	})
	if err != nil {
		return err
	}
	incomplete := list.Incomplete()
	if len(list.Items) == 0 && incomplete == nil {
		return fmt.Errorf("describe process %s: no consumer knows it; see gputap get processes", name)
	}
	processes.sort(list, func(a, b *process) int { return (*b).Start.Compare((*a).Start) }, 0)
	err = format.write(q.p.Stdout, list, func(w io.Writer) {
		for i, p := range list.Items {
			if i > 0 {
				fmt.Fprintln(w)
			}
			p.Describe(w, list.Time)
		}
	})
	if len(list.NotRunning) > 0 && !format.json() && list.MovingText() == "" {
		fmt.Fprintf(q.p.Stderr, "not running: %s; their figures are unknown\n", strings.Join(list.NotRunning, ", "))
	}
	if err == nil && incomplete != nil {
		err = app.Incomplete(incomplete)
	}
	return err
}
