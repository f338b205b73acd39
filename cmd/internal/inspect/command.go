package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/query"
)

const defaultTimeout = 2 * time.Second

// Commands returns top, get, describe, status and tail.
func Commands(p *app.Process) []*cobra.Command {
	return []*cobra.Command{topCommand(p), getCommand(p), describeCommand(p), statusCommand(p), tailCommand(p)}
}

// question is the common part of the commands: whom to ask, about what, and how long to wait.
type question struct {
	p       *app.Process
	cmd     *cobra.Command
	readBus func() (config.NATS, error)
	timeout time.Duration
	pid     int  // of a gputap run; 0: the newest
	told    bool // that there are several runs
	query.Filter
}

// newQuestion adds the flags of NATS and of the timeout to a command and those below it.
func newQuestion(p *app.Process, cmd *cobra.Command) *question {
	q := &question{p: p, cmd: cmd}
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	flags.DurationVar(&q.timeout, "timeout", defaultTimeout, "how long to wait for answers")
	flags.IntVar(&q.pid, "pid", 0, "ask the gputap run of this host with this PID (default: the newest)")
	q.readBus = config.BusFlags(flags)
	flags.Lookup(urlFlag).DefValue = "" // without it the socket of gputap run is used
	return q
}

// addHostFilters adds the flags that select hosts.
func (q *question) addHostFilters(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&q.Cluster, "cluster", "", "only this cluster, or those of a pattern such as 'prod-*'")
	flags.StringVar(&q.Host, "host", "", "only this host, or those of a pattern")
}

// addFilters adds the flags that select processes.
func (q *question) addFilters(cmd *cobra.Command) {
	q.addHostFilters(cmd)
	flags := cmd.PersistentFlags()
	flags.StringVar(&q.User, "user", "", "only processes of this user name, uid or pattern")
	flags.StringVar(&q.Comm, "comm", "", "only processes of this command name or pattern")
	flags.StringVar(&q.Job, "job", "", "only processes of this job, or of those of a pattern such as 'slurm:*'")
}

func (q *question) validate() error {
	if q.timeout <= 0 {
		return app.Usage(fmt.Errorf("--timeout %s: use more than 0", q.timeout))
	}
	if q.pid < 0 {
		return app.Usage(fmt.Errorf("--pid %d: use the PID of a gputap run", q.pid))
	}
	if err := q.Validate(); err != nil {
		return app.Usage(fmt.Errorf("--%w", err))
	}
	return nil
}

// with connects and calls do. It explains timeouts by missing permissions.
func (q *question) with(ctx context.Context, do func(context.Context, *answer.Fleet) error) error {
	if err := q.validate(); err != nil {
		return err
	}
	nc, err := q.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	return unreachable(q.p.ExplainTimeout(do(ctx, answer.NewFleet(nc))))
}

// unreachable gives the loss of the connection its exit status.
func unreachable(err error) error {
	if errors.Is(err, query.ErrDisconnected) {
		return app.Unreachable(err)
	}
	return err
}

// ask calls do with the time that an answer may take.
func (q *question) ask(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	return do(ctx)
}
