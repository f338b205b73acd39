package answer

import (
	"context"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/snapshot"
)

// hostRow is one host with the sums of its processes.
type hostRow struct {
	report.HostRow
	Running   int    // processes
	LiveBytes uint64 // of them
}

// hostRows are the hosts of a reader, in its order. Without a tracker there are no sums of processes. If the question
// selects processes, the rows are the hosts on which such processes run.
func hostRows(f *coverage.Fold, t *leak.Tracker, r *consumer.Reader, q *query.Question) (rows []hostRow) {
	at := map[snapshot.HostID]int{}
	for _, h := range report.HostRows(f, r) {
		status := &h.Status
		if !q.OfHost(status.Cluster, status.Host) {
			continue
		}
		row := hostRow{HostRow: h}
		if !q.Detail {
			row.Beat.Processes = nil
		}
		at[snapshot.HostID{Cluster: status.Cluster, Host: status.Host}] = len(rows)
		rows = append(rows, row)
	}
	if t == nil {
		return rows
	}
	for _, p := range selected(t.Report().Processes, q, func(p *leak.Process) *process.Info { return &p.Info }) {
		i, known := at[snapshot.HostID{Cluster: p.ID.Cluster, Host: p.ID.Host}]
		if known && !p.Ended {
			rows[i].Running++
			rows[i].LiveBytes += p.LiveBytes
		}
	}
	if q.OfProcesses() && !q.Detail { // details of ended processes count too
		rows = slices.DeleteFunc(rows, func(r hostRow) bool { return r.Running == 0 })
	}
	return rows
}

// FleetHost is a host with the sums of its processes.
type FleetHost struct {
	report.Host
	Processes int    `json:"processes"` // that run
	LiveBytes uint64 `json:"live_bytes"`
}

// Hosts lists the hosts that gputap-leak has heard of.
func (f *Fleet) Hosts(ctx context.Context, q query.Question) (*List[FleetHost], error) {
	q.What = whatHosts
	answers, reach, err := f.ask(ctx, q, "leak")
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	items, err := fleetHosts(answers[0], now)
	return &List[FleetHost]{Time: now, Reach: reach, Total: answers[0].Total(), Items: items}, err
}

// fleetHosts returns the hosts of an answer.
func fleetHosts(a *query.Answer, now time.Time) ([]FleetHost, error) {
	s, items := report.New(now), []FleetHost{}
	err := addEach(a, func(row *hostRow) {
		s.AddHost(&row.HostRow)
		items = append(items, FleetHost{s.Hosts[len(s.Hosts)-1], row.Running, row.LiveBytes})
	})
	return items, err
}
