package pipeline

import "github.com/gputap/gputap/consumer/coverage"

// Host is the last heartbeat of a host.
type Host struct {
	Host      string        `json:"host"`
	Linux     string        `json:"linux"`
	Producer  string        `json:"producer"`
	GPUs      []HostGPU     `json:"gpus"`
	Libraries []HostLibrary `json:"libraries"`
}

// HostGPU is one GPU of a host.
type HostGPU struct {
	UUID  string `json:"uuid"`
	Minor uint32 `json:"minor"`
	Name  string `json:"name"`
	Bus   string `json:"bus"`
}

// HostLibrary is one driver library on a host, with its numbers of probes.
type HostLibrary struct {
	Path     string   `json:"path"`
	Attached uint32   `json:"attached"`
	Stepped  uint32   `json:"stepped"`
	Absent   []string `json:"absent"`
	Failed   []string `json:"failed"`
}

// Unseen counts the functions that a process got from the driver and that have no probe.
type Unseen struct {
	Asked        uint32   `json:"asked"`
	Functions    []string `json:"functions"`
	ExportTables uint32   `json:"export_tables"`
}

// hosts adds the heartbeats of the hosts to the snapshot, and their reports on processes to the processes.
func (s *Snapshot) hosts(report []coverage.Host) {
	s.Hosts = []Host{}
	for i := range report {
		h := &report[i]
		j := Host{Host: h.Host, Linux: h.Linux, Producer: h.Producer, GPUs: []HostGPU{}, Libraries: []HostLibrary{}}
		for _, g := range h.GPUs {
			j.GPUs = append(j.GPUs, HostGPU{g.UUID, g.Ordinal, g.Name, g.Bus})
		}
		for _, l := range h.Libraries {
			j.Libraries = append(j.Libraries, HostLibrary{l.Path, l.Attached, l.Stepped, list(l.Absent),
				list(l.Failed)})
		}
		s.Hosts = append(s.Hosts, j)
		for _, c := range h.Processes {
			for _, p := range s.Processes {
				if p.id == c.ID {
					p.Unseen = Unseen{c.Asked, list(c.Outside), c.ExportTables}
				}
			}
		}
	}
	for _, p := range s.Processes {
		p.Unseen.Functions = list(p.Unseen.Functions)
	}
}

// list returns an empty list for nil, which JSON would write as null.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
