package source

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// Range selects what a command reads: a range of time of a recording or of a bus, and processes.
type Range struct {
	query.Filter
	Since, Until time.Time // when NATS stored the messages; zero: no limit

	since, until string // as typed
	resolved     []any  // times that were not typed in full, as attributes of the log
	readBus      func() (config.NATS, error)
}

// AddFlags adds the flags of the range to a command.
func (r *Range) AddFlags(cmd *cobra.Command) {
	r.AddTimeFlags(cmd)
	r.AddProcessFlags(cmd)
	r.AddBusFlags(cmd)
}

// AddTimeFlags adds the flags of the range of time.
func (r *Range) AddTimeFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.since, "since", "", "begin with what NATS stored at this time: 10m, 03:00, 2026-01-02T03:00:00Z")
	flags.StringVar(&r.until, "until", "", "end before what NATS stored at this time")
}

// AddBusFlags adds the flags of the bus from which a command without FILE reads.
func (r *Range) AddBusFlags(cmd *cobra.Command) { r.readBus = config.BusFlags(cmd.Flags()) }

// AddProcessFlags adds the flags that select processes.
func (r *Range) AddProcessFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.Cluster, "cluster", "", "only this cluster, or those of a pattern such as 'prod-*'")
	flags.StringVar(&r.Host, "host", "", "only this host, or those of a pattern")
	flags.StringVar(&r.User, "user", "", "only processes of this user name, uid or pattern")
	flags.StringVar(&r.Comm, "comm", "", "only processes of this command name or pattern")
	flags.StringVar(&r.Job, "job", "", "only processes of this job, or of those of a pattern such as 'slurm:*'")
	flags.Uint32Var(&r.PID, "pid", 0, "only processes with this PID")
}

// Parse checks the values of the flags.
func (r *Range) Parse() (err error) {
	if err := r.Validate(); err != nil {
		return app.Usage(fmt.Errorf("--%w", err))
	}
	now := time.Now()
	for _, one := range []struct {
		name, text string
		to         *time.Time
	}{{"since", r.since, &r.Since}, {"until", r.until, &r.Until}} {
		if one.text == "" {
			continue
		}
		if *one.to, err = app.ParseTime(one.text, now); err != nil {
			return app.Usage(fmt.Errorf("--%s: %w", one.name, err))
		}
		if _, err := time.Parse(time.RFC3339, one.text); err != nil { // it depends on the time or the zone of now
			r.resolved = append(r.resolved, one.name, *one.to)
		}
	}
	return r.check(now)
}

// Selects reports whether the range has a process.
func (r *Range) Selects(p *process.Info) bool {
	return r.Process(&query.Subject{Cluster: p.ID.Cluster, Host: p.ID.Host, User: p.User, Comm: p.Comm, Job: p.Job,
		UID: p.UID, PID: p.ID.PID})
}

// SelectsRow reports whether the range has process p of a batch.
func (r *Range) SelectsRow(b *schema.Batch, p *schema.Process) bool {
	return r.Process(&query.Subject{Cluster: b.Cluster, Host: b.Host, User: p.User, Comm: p.Comm, Job: p.Job,
		UID: p.UID, PID: p.PID})
}
