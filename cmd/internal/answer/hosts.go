package answer

import (
	"context"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/snapshot"
)

// hostRow is one host, as the reader and the coverage fold know it.
type hostRow struct {
	Status consumer.HostStatus
	Beat   coverage.Host // zero before the first heartbeat
	Late   int           // processes that ran before gputap attached

	Running   int    // processes
	LiveBytes uint64 // of them
}

// hostRows joins the hosts of a reader with their last heartbeats, in the order of the reader. Without a tracker there
// are no sums of processes. If the question selects processes, the rows are the hosts on which such processes run.
func hostRows(f *coverage.Fold, t *leak.Tracker, r *consumer.Reader, q *query.Question) (rows []hostRow) {
	beats := map[snapshot.HostID]coverage.Host{}
	for _, h := range f.Report() {
		beats[snapshot.HostID{Cluster: h.Cluster, Host: h.Host}] = h
	}
	at := map[snapshot.HostID]int{}
	for _, status := range r.Hosts() {
		if !q.OfHost(status.Cluster, status.Host) {
			continue
		}
		row := hostRow{Status: status, Beat: beats[snapshot.HostID{Cluster: status.Cluster, Host: status.Host}]}
		for i := range row.Beat.Processes {
			if row.Beat.Processes[i].Late {
				row.Late++
			}
		}
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

// heardOf returns when NATS stored the last batch of each host.
func heardOf(r *consumer.Reader) map[snapshot.HostID]time.Time {
	heard := map[snapshot.HostID]time.Time{}
	for _, h := range r.Hosts() {
		heard[snapshot.HostID{Cluster: h.Cluster, Host: h.Host}] = h.Heard
	}
	return heard
}

func (s *Snapshot) addHost(row *hostRow) {
	h, beat := &row.Status, &row.Beat
	host := Host{
		Cluster: h.Cluster, Host: h.Host, Heard: known(h.Heard), LastEvent: known(h.LastEvent),
		Linux: beat.Linux, Producer: beat.Producer, GPUs: []HostGPU{}, Libraries: []HostLibrary{},
		Lost: map[string]uint64{}, LateProcesses: row.Late,
	}
	host.addLost(h)
	for _, g := range beat.GPUs {
		host.GPUs = append(host.GPUs, HostGPU{g.UUID, new(g.Ordinal), g.Name, g.Bus})
	}
	for _, l := range beat.Libraries {
		host.Libraries = append(host.Libraries,
			HostLibrary{l.Path, l.Attached, l.Stepped, list(l.Absent), list(l.Failed)})
	}
	s.Hosts = append(s.Hosts, host)
	for _, c := range beat.Processes {
		if p := s.byID[c.ID]; p != nil {
			p.Unseen = Unseen{c.Asked, list(c.Outside), c.ExportTables}
		}
	}
}

// list replaces nil, which JSON would write as null.
func list(s []string) []string { return append([]string{}, s...) }

// FleetHost is a host with the sums of its processes.
type FleetHost struct {
	Host
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
	s, items := New(now), []FleetHost{}
	err := addEach(a, func(row *hostRow) {
		s.addHost(row)
		items = append(items, FleetHost{s.Hosts[len(s.Hosts)-1], row.Running, row.LiveBytes})
	})
	return items, err
}
