package answer

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/query"
)

// alertRows are the newest alerts of all folds first, or those of them that fire.
func (p *Part) alertRows(q *query.Question) (iter.Seq[any], int) {
	rows, found := []alert.Alert{}, false
	for _, f := range p.Folds {
		if f, ok := f.(interface{ Alerts() []alert.Alert }); ok {
			rows, found = append(rows, f.Alerts()...), true
		}
	}
	if !found {
		return nil, 0
	}
	if p.Silent != nil {
		rows = append(rows, p.Silent()...)
	}
	rows = slices.DeleteFunc(rows, func(a alert.Alert) bool {
		return q.What == whatFiring && a.State != alert.Firing || !selects(&q.Filter, &a)
	})
	slices.SortStableFunc(rows, func(a, b alert.Alert) int { return b.Time.Compare(a.Time) })
	return cut(rows, q.Limit)
}

func selects(f *query.Filter, a *alert.Alert) bool {
	return f.Process(&query.Subject{Cluster: a.Cluster, Host: a.Host, User: a.User, Comm: a.Comm, Job: a.Job,
		UID: a.UID, PID: a.PID})
}

// Alerts lists the alerts that gputap-anomaly and gputap-leak keep, the newest first.
func (f *Fleet) Alerts(ctx context.Context, q query.Question) (*List[anomaly.Alert], error) {
	q.What = whatAlerts
	answers, reach, err := f.ask(ctx, q, "anomaly", "leak")
	if err != nil {
		return nil, err
	}
	total, items := 0, []anomaly.Alert{} // JSON has no null
	for _, a := range answers {
		list, err := query.Rows[anomaly.Alert](a)
		if err != nil {
			return nil, err
		}
		items, total = append(items, list...), total+a.Total()
	}
	slices.SortStableFunc(items, func(a, b anomaly.Alert) int { return b.Time.Compare(a.Time) })
	return &List[anomaly.Alert]{Time: time.Now().UTC(), Reach: reach, Total: total, Items: items}, nil
}
