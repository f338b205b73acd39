package answer

import "github.com/gputap/gputap/consumer/coverage"

func (s *Snapshot) addHosts(report []coverage.Host) {
	for i := range report {
		h := &report[i]
		host := Host{Host: h.Host, Linux: h.Linux, Producer: h.Producer, GPUs: []HostGPU{}, Libraries: []HostLibrary{}}
		for _, g := range h.GPUs {
			host.GPUs = append(host.GPUs, HostGPU{g.UUID, g.Ordinal, g.Name, g.Bus})
		}
		for _, l := range h.Libraries {
			host.Libraries = append(host.Libraries,
				HostLibrary{l.Path, l.Attached, l.Stepped, list(l.Absent), list(l.Failed)})
		}
		s.Hosts = append(s.Hosts, host)
		for _, c := range h.Processes {
			if p := s.byID[c.ID]; p != nil {
				p.Unseen = Unseen{c.Asked, list(c.Outside), c.ExportTables}
			}
		}
	}
}

// list replaces nil, which JSON would write as null.
func list(s []string) []string { return append([]string{}, s...) }
