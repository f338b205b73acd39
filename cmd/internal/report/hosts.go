package report

import (
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/snapshot"
)

// HostRow is one host, as the reader and the coverage fold know it.
type HostRow struct {
	Status consumer.HostStatus
	Beat   coverage.Host // zero before the first heartbeat
	Late   int           // processes that ran before gputap attached
}

// HostRows joins the hosts of a reader with their last heartbeats, in the order of the reader.
func HostRows(f *coverage.Fold, r *consumer.Reader) (rows []HostRow) {
	beats := map[snapshot.HostID]coverage.Host{}
	for _, h := range f.Report() {
		beats[snapshot.HostID{Cluster: h.Cluster, Host: h.Host}] = h
	}
	for _, status := range r.Hosts() {
		row := HostRow{Status: status, Beat: beats[snapshot.HostID{Cluster: status.Cluster, Host: status.Host}]}
		for i := range row.Beat.Processes {
			if row.Beat.Processes[i].Late {
				row.Late++
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// AddHost adds a host, and what its heartbeat says about the processes that the snapshot has.
func (s *Snapshot) AddHost(row *HostRow) {
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
