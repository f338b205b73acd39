package main

import "github.com/gputap/gputap/consumer/coverage"

// hostJSON is what a host said of itself last.
type hostJSON struct {
	Host      string            `json:"host"`
	Linux     string            `json:"linux"`
	Producer  string            `json:"producer"`
	GPUs      []hostGPUJSON     `json:"gpus"`
	Libraries []hostLibraryJSON `json:"libraries"`
}

type hostGPUJSON struct {
	UUID  string `json:"uuid"`
	Minor uint32 `json:"minor"`
	Name  string `json:"name"`
	Bus   string `json:"bus"`
}

type hostLibraryJSON struct {
	Path     string   `json:"path"`
	Attached uint32   `json:"attached"`
	Stepped  uint32   `json:"stepped"`
	Absent   []string `json:"absent"`
	Failed   []string `json:"failed"`
}

// unseenJSON is what a process got from the driver besides the probed functions.
type unseenJSON struct {
	Asked        uint32   `json:"asked"`
	Functions    []string `json:"functions"`
	ExportTables uint32   `json:"export_tables"`
}

// hosts adds what hosts said of themselves, and of processes to these.
func (s *snapshot) hosts(report []coverage.Host) {
	s.Hosts = []hostJSON{}
	for i := range report {
		h := &report[i]
		j := hostJSON{Host: h.Host, Linux: h.Linux, Producer: h.Producer, GPUs: []hostGPUJSON{}, Libraries: []hostLibraryJSON{}}
		for _, g := range h.GPUs {
			j.GPUs = append(j.GPUs, hostGPUJSON{g.UUID, g.Ordinal, g.Name, g.Bus})
		}
		for _, l := range h.Libraries {
			j.Libraries = append(j.Libraries, hostLibraryJSON{l.Path, l.Attached, l.Stepped, list(l.Absent), list(l.Failed)})
		}
		s.Hosts = append(s.Hosts, j)
		for _, c := range h.Processes {
			for _, p := range s.Processes {
				if p.id == c.ID {
					p.Unseen = unseenJSON{c.Asked, list(c.Outside), c.ExportTables}
				}
			}
		}
	}
	for _, p := range s.Processes {
		p.Unseen.Functions = list(p.Unseen.Functions)
	}
}

// list is never null in JSON.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
