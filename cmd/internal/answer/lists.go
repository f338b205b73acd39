package answer

import (
	"context"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
)

// Processes lists processes with the figures of gputap-leak. With q.Detail it joins those of gputap-launch and
// gputap-bandwidth, if they run. Then each is as gputap run reports it.
func (f *Fleet) Processes(ctx context.Context, q query.Question) (*List[*Process], error) {
	list, _, err := f.processes(ctx, q)
	return list, err
}

// processes also asks another question at the same time, if there is one, and returns its answer.
func (f *Fleet) processes(ctx context.Context, q query.Question, other ...asked) (
	list *List[*Process], another *query.Answer, err error,
) {
	of := func(fold, what string) asked {
		q := q
		q.What = what
		return asked{fold, q}
	}
	questions := []asked{of("leak", whatProcesses)}
	if q.Detail { // hosts know the functions without a probe that processes obtained
		questions = append(questions, of("launch", whatProcesses), of("bandwidth", whatProcesses),
			of("leak", whatTensors), of("leak", whatHosts))
	}
	own := len(questions)
	answers, shards, err := f.askEach(ctx, append(questions, other...))
	if err != nil {
		return nil, nil, err
	}
	s := New(time.Now())
	for i, a := range answers[:own] {
		if err := s.addRows(a, questions[i].What); err != nil {
			return nil, nil, err
		}
	}
	for i, a := range answers[:own] {
		if questions[i].What == whatProcesses {
			markUnknown(s.Processes, shards, a, &questions[i].Question)
		}
	}
	total := answers[0].Total()
	if q.Limit == 0 {
		total = len(s.Processes) // some have launches and no memory
	}
	list = &List[*Process]{Time: s.Time, Reach: reachOf(shards, answers...), Total: total, Items: s.Processes}
	return list, answers[len(answers)-1], nil
}

// addRows joins what a fold answered about processes. Hosts and tensors come after the processes.
func (s *Snapshot) addRows(a *query.Answer, what string) error {
	switch {
	case what == whatTensors:
		return addEach(a, s.addTensors)
	case what == whatHosts:
		return addEach(a, s.addHost)
	case a.Fold == "leak":
		return addEach(a, s.addProcess)
	case a.Fold == "launch":
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

// FleetGPU is a GPU of a host with the live memory of its processes.
type FleetGPU struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	HostGPU
	LiveBytes uint64      `json:"live_bytes"`
	Processes int         `json:"processes"`   // with live memory on it
	Info      *MemoryInfo `json:"memory_info"` // the newest answer of cuMemGetInfo; null: no process asked
	Total     *uint64     `json:"total_bytes"` // as any process was told; null: no process asked
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
			g.add(g.find(p.Cluster, p.Host, HostGPU{UUID: uuid}), use)
		}
	}
	items := slices.DeleteFunc(append([]FleetGPU{}, g.items...), func(g FleetGPU) bool {
		return (g.UUID == unknown || q.OfProcesses()) && g.LiveBytes == 0
	})
	return &List[FleetGPU]{Time: processes.Time, Reach: processes.Reach, Total: len(items), Items: items}, nil
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
	if use.total > 0 {
		to.Total = &use.total
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
