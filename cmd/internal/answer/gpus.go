package answer

import (
	"context"
	"slices"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/query"
)

// FleetGPU is a GPU of a host with the live memory of its processes.
type FleetGPU struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	report.HostGPU
	LiveBytes uint64             `json:"live_bytes"`
	Processes int                `json:"processes"`   // with live memory on it
	Info      *report.MemoryInfo `json:"memory_info"` // the newest answer of cuMemGetInfo; null: no process asked
	Total     *uint64            `json:"total_bytes"` // that the driver told a process; null: no process asked
}

// GPUs lists the GPUs of the hosts, and GPUs that only processes name. If the question selects processes, it lists the
// GPUs on which these have live memory.
func (f *Fleet) GPUs(ctx context.Context, q query.Question) (*List[FleetGPU], error) {
	q.Limit, q.What = 0, whatHosts // items are sums of rows
	processes, answer, err := f.processes(ctx, q, asked{"leak", q})
	if err != nil {
		return nil, err
	}
	hosts, err := fleetHosts(answer, processes.Time)
	if err != nil {
		return nil, err
	}
	g := gpus{at: map[[3]string]int{}}
	for i := range hosts {
		for _, gpu := range hosts[i].GPUs {
			g.find(hosts[i].Cluster, hosts[i].Host.Host, gpu)
		}
	}
	for _, p := range processes.Items {
		for uuid, use := range p.GPUs {
			g.add(g.find(p.Cluster, p.Host, report.HostGPU{UUID: uuid}), use)
		}
	}
	items := slices.DeleteFunc(append([]FleetGPU{}, g.items...), func(g FleetGPU) bool {
		return (g.UUID == report.Unknown || q.OfProcesses()) && g.LiveBytes == 0
	})
	return &List[FleetGPU]{Time: processes.Time, Reach: processes.Reach, Total: len(items), Items: items}, nil
}

type gpus struct {
	items []FleetGPU
	at    map[[3]string]int
}

func (g *gpus) find(cluster, host string, gpu report.HostGPU) *FleetGPU {
	key := [3]string{cluster, host, gpu.UUID}
	i, known := g.at[key]
	if !known {
		i = len(g.items)
		g.at[key] = i
		g.items = append(g.items, FleetGPU{Cluster: cluster, Host: host, HostGPU: gpu})
	}
	return &g.items[i]
}

func (g *gpus) add(to *FleetGPU, use *report.GPU) {
	if to.LiveBytes += use.LiveBytes; use.LiveBytes > 0 {
		to.Processes++
	}
	if total := use.TotalBytes(); total > 0 {
		to.Total = &total
	}
	if use.Info != nil && (to.Info == nil || use.Info.Time.After(to.Info.Time)) {
		to.Info = use.Info
	}
}
