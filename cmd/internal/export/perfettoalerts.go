package export

import (
	"cmp"
	"context"
	"time"

	"github.com/gputap/gputap/cmd/internal/backtest"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// alertsOf returns the alerts of the selected processes, hosts and jobs. It reads the recording once.
func alertsOf(ctx context.Context, o *options, s *source.Source) (list []*backtest.Incident, err error) {
	if !o.alerts {
		return nil, nil
	}
	all, err := backtest.Alerts(ctx, s, o.Since, o.Until, o.p.Log)
	for _, i := range all {
		if o.Process(&query.Subject{Cluster: i.Cluster, Host: i.Host, User: i.User, Comm: i.Comm, Job: i.Job,
			UID: i.UID, PID: i.PID}) {
			list = append(list, i)
		}
	}
	return list, err
}

// subject names a process as alerts do.
type subject struct {
	cluster, host string
	pid           uint32
}

// writeAlerts writes the alerts as instants: on a track of their process, or on one of their host or job.
func (t *trace) writeAlerts() error {
	of := map[subject]*processTrack{}
	started := map[subject]schema.KTime{}
	for id, p := range t.processes {
		key := subject{id.Cluster, id.Host, id.PID}
		if of[key] == nil || id.Start > started[key] { // Linux used the PID again
			of[key], started[key] = p, id.Start
		}
	}
	for _, i := range t.incidents {
		var track uint64
		if p := of[subject{i.Cluster, i.Host, i.PID}]; p != nil && i.PID > 0 {
			track = t.alerts(p)
		} else {
			track = t.other("alerts of " + cmp.Or(i.Host, i.Job))
		}
		err := t.instant(&traceEvent{track: track, at: i.Fired.UnixNano(), name: i.Rule, category: "alert",
			args: alertArgs(i)})
		if err != nil {
			return err
		}
	}
	return nil
}

func alertArgs(i *backtest.Incident) (a args) {
	a.text("severity", i.Severity)
	a.text("message", i.Message)
	a.text("comm", i.Comm)
	a.text("job", i.Job)
	a.text("gpu", i.GPU)
	a.text("thread", i.ThreadComm)
	a.text("symbol", i.Symbol)
	a.text("address", i.Address)
	a.number("bytes", i.Bytes)
	a.float("value", i.Value)
	a.float("baseline", i.Baseline)
	a.float("score", i.Score)
	a.number("repeats", i.Repeats)
	a.text("since", i.Since.UTC().Format(time.RFC3339Nano))
	if !i.Cleared.IsZero() {
		a.text("cleared", i.Cleared.UTC().Format(time.RFC3339Nano))
	}
	return a
}
