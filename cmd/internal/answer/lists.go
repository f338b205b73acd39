package answer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/tensor"
)

// Processes lists processes with the figures of gputap-leak. With q.Detail it joins those of gputap-launch and
// gputap-bandwidth, if they run. Then each is as gputap run reports it.
func (f *Fleet) Processes(ctx context.Context, q query.Question) (*List[*Process], error) {
	q.What = whatProcesses
	folds := []string{"leak"}
	if q.Detail {
		folds = append(folds, "launch", "bandwidth")
	}
	answers, reach, err := f.ask(ctx, q, folds...)
	if err != nil {
		return nil, err
	}
	s := New(time.Now())
	for _, a := range answers {
		if err := s.addRows(a); err != nil {
			return nil, err
		}
	}
	if q.Detail {
		if err := errors.Join(f.addTorch(ctx, s, q), f.addUnseen(ctx, s, q)); err != nil {
			return nil, err
		}
	}
	total := answers[0].Total()
	if q.Limit == 0 {
		total = len(s.Processes) // some have launches and no memory
	}
	return &List[*Process]{Time: s.Time, Reach: reach, Total: total, Items: s.Processes}, nil
}

// addTorch adds PyTorch's allocators.
func (f *Fleet) addTorch(ctx context.Context, s *Snapshot, q query.Question) error {
	q.What = whatTensors
	list, _, _, err := rows[tensor.Process](ctx, f, q, "leak")
	for i := range list {
		s.addTensors(&list[i])
	}
	return err
}

// addUnseen adds the functions without a probe that processes obtained, from the heartbeats of their hosts.
func (f *Fleet) addUnseen(ctx context.Context, s *Snapshot, q query.Question) error {
	q.What = whatHosts
	list, _, _, err := rows[hostRow](ctx, f, q, "leak")
	for i := range list {
		s.addHost(&list[i])
	}
	return err
}

// addRows joins the processes of a fold.
func (s *Snapshot) addRows(a *query.Answer) error {
	switch a.Fold {
	case "leak":
		return addEach(a, s.addProcess)
	case "launch":
		return addEach(a, s.addLaunches)
	default:
		return addEach(a, s.addCopies)
	}
}

func addEach[T any](a *query.Answer, add func(*T)) error {
	list, err := query.Rows[T](a)
	for i := range list {
		add(&list[i])
	}
	return err
}

// FleetHost is a host with the sums of its processes.
type FleetHost struct {
	Host
	Processes int    `json:"processes"` // that run
	LiveBytes uint64 `json:"live_bytes"`
}

// Hosts lists the hosts that gputap-leak has heard of.
func (f *Fleet) Hosts(ctx context.Context, q query.Question) (*List[FleetHost], error) {
	q.What = whatHosts
	list, total, reach, err := rows[hostRow](ctx, f, q, "leak")
	if err != nil {
		return nil, err
	}
	s := New(time.Now())
	items := make([]FleetHost, 0, len(list))
	for i := range list {
		s.addHost(&list[i])
		items = append(items, FleetHost{s.Hosts[i], list[i].Running, list[i].LiveBytes})
	}
	return &List[FleetHost]{Time: s.Time, Reach: reach, Total: total, Items: items}, nil
}

// FleetGPU is a GPU of a host with the live memory of its processes.
type FleetGPU struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	HostGPU
	LiveBytes uint64      `json:"live_bytes"`
	Processes int         `json:"processes"`   // with live memory on it
	Info      *MemoryInfo `json:"memory_info"` // the newest answer of cuMemGetInfo; null: no process asked
}

// GPUs lists the GPUs of the hosts, and GPUs that only processes name. If the question selects processes, it lists the
// GPUs on which these have live memory.
func (f *Fleet) GPUs(ctx context.Context, q query.Question) (*List[FleetGPU], error) {
	q.Limit = 0 // items are sums of rows
	hosts, err := f.Hosts(ctx, q)
	if err != nil {
		return nil, err
	}
	processes, err := f.Processes(ctx, q)
	if err != nil {
		return nil, err
	}
	if hosts.Incomplete() == nil {
		hosts.Reach = processes.Reach
	}
	hosts.Total = 0
	g := gpus{at: map[[3]string]int{}}
	for i := range hosts.Items {
		for _, gpu := range hosts.Items[i].GPUs {
			g.find(hosts.Items[i].Cluster, hosts.Items[i].Host.Host, gpu)
		}
	}
	for _, p := range processes.Items {
		for uuid, use := range p.GPUs {
			g.add(g.find(p.Cluster, p.Host, HostGPU{UUID: uuid}), use)
		}
	}
	items := slices.DeleteFunc(append([]FleetGPU{}, g.items...), func(g FleetGPU) bool {
		return (g.UUID == unknown || q.OfProcesses()) && g.LiveBytes == 0
	})
	return &List[FleetGPU]{Time: hosts.Time, Reach: hosts.Reach, Total: len(items), Items: items}, nil
}

type gpus struct {
	items []FleetGPU
	at    map[[3]string]int
}

func (g *gpus) find(cluster, host string, gpu HostGPU) *FleetGPU {
	key := [3]string{cluster, host, gpu.UUID}
	i, known := g.at[key]
	if !known {
		i = len(g.items)
		g.at[key] = i
		g.items = append(g.items, FleetGPU{Cluster: cluster, Host: host, HostGPU: gpu})
	}
	return &g.items[i]
}

func (g *gpus) add(to *FleetGPU, use *GPU) {
	if to.LiveBytes += use.LiveBytes; use.LiveBytes > 0 {
		to.Processes++
	}
	if use.Info != nil && (to.Info == nil || use.Info.Time.After(to.Info.Time)) {
		to.Info = use.Info
	}
}

// Who names the process of an item.
type Who struct {
	Cluster string    `json:"cluster"`
	Host    string    `json:"host"`
	PID     uint32    `json:"pid"`
	Start   time.Time `json:"start"`
	Comm    string    `json:"comm"`
	UID     uint32    `json:"uid"`
	User    string    `json:"user"`
}

func whoOf(i *process.Info) Who {
	return Who{i.ID.Cluster, i.ID.Host, i.ID.PID, i.Start, i.Comm, i.UID, i.User}
}

// FleetKernel is one CUDA kernel of one process.
type FleetKernel struct {
	Who
	Name string `json:"kernel"`
	Kernel
}

// Kernels lists the CUDA kernels of gputap-launch.
func (f *Fleet) Kernels(ctx context.Context, q query.Question) (*List[FleetKernel], error) {
	q.What = whatKernels
	list, total, reach, err := rows[kernelRow](ctx, f, q, "launch")
	if err != nil {
		return nil, err
	}
	items := make([]FleetKernel, 0, len(list))
	for i := range list {
		one := &Process{Launches: map[string]uint64{}, Kernels: map[string]*Kernel{}}
		one.kernel(&list[i].Func)
		items = append(items, FleetKernel{whoOf(&list[i].Info), list[i].Func.Name, *one.Kernels[list[i].Func.Name]})
	}
	return &List[FleetKernel]{Time: time.Now().UTC(), Reach: reach, Total: total, Items: items}, nil
}

// FleetCopy is the copies of one process in one direction.
type FleetCopy struct {
	Who
	Direction string `json:"direction"`
	Copy
}

// Copies lists the copies of gputap-bandwidth.
func (f *Fleet) Copies(ctx context.Context, q query.Question) (*List[FleetCopy], error) {
	q.What, q.Limit = whatProcesses, 0 // one process has several items
	list, _, reach, err := rows[bandwidth.Process](ctx, f, q, "bandwidth")
	if err != nil {
		return nil, err
	}
	items := []FleetCopy{}
	for i := range list {
		for _, c := range list[i].Copies {
			items = append(items, FleetCopy{whoOf(&list[i].Info), c.Word(), copyOf(&c)})
		}
	}
	return &List[FleetCopy]{Time: time.Now().UTC(), Reach: reach, Total: len(items), Items: items}, nil
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
