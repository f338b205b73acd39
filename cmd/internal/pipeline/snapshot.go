package pipeline

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

const unknown = "unknown"

// process returns the process that all folds' reports about it are joined in.
func (s *Snapshot) process(info *process.Info) *Process {
	if p := s.byID[info.ID]; p != nil {
		return p
	}
	p := &Process{
		PID: info.ID.PID, Start: info.Start, Comm: info.Comm, Exe: info.Exe, UID: info.UID, Container: info.Container,
		Host: info.ID.Host, Evidence: "complete", Calls: map[string]*Call{}, GPUs: map[string]*GPU{},
		Launches: map[string]uint64{}, Copies: map[string]*Copy{}, Threads: []Thread{}, id: info.ID,
		User: info.User, Pod: info.Pod, Unit: info.Unit, Cgroup: info.Cgroup, NSPID: info.NSPID,
		Classes: map[string]uint64{}, Holders: Holders{List: []Holder{}}, Pools: []Pool{},
		TopKernels: []KernelRate{}, Graphs: []GraphRate{}, CopyGroups: []CopyGroup{},
		Kernels: map[string]*Kernel{}, Unseen: Unseen{Functions: []string{}},
	}
	if info.Late {
		p.Evidence = "late"
	}
	s.byID[info.ID] = p
	s.Processes = append(s.Processes, p)
	return p
}

func (s *Snapshot) addMemory(report leak.Report) {
	c := report.Counters
	s.Counters = Counters{
		UnmatchedFrees: c.UnmatchedFrees, ReallocOverLive: c.ReallocOverLive, LateFrees: c.LateFrees,
		UnseenEnds: c.UnseenEnds, NullFrees: c.NullFrees, UnknownHandles: c.UnknownHandles,
		UnknownContexts: c.UnknownContexts,
	}
	for i := range report.Processes {
		q := &report.Processes[i]
		s.process(&q.Info).memory(q)
	}
}

func (s *Snapshot) addLaunches(report []launch.Process) {
	for i := range report {
		q := &report[i]
		p := s.process(&q.Info)
		p.calls(q.Calls)
		p.GraphLaunches, p.GraphLaunchesPartial, p.HostFuncs = q.GraphLaunches, q.GraphLaunchesPartial, q.HostFuncs
		p.Recorded += q.Recorded
		for _, f := range q.Funcs {
			p.kernel(&f)
		}
		p.launchRates(q, s.features)
	}
}

func (s *Snapshot) addCopies(report []bandwidth.Process) {
	for i := range report {
		q := &report[i]
		p := s.process(&q.Info)
		p.calls(q.Calls)
		for _, c := range q.Copies {
			p.Copies[c.Word()] = &Copy{c.Calls, c.Bytes, float64(c.BusyNS) / 1e9, c.AsyncCalls, c.AsyncBytes}
		}
		p.copyGroups(q, s.features)
		p.Recorded += q.Recorded
		p.Waits = Waits{Calls: q.Waits.Calls, Seconds: float64(q.Waits.NS) / 1e9}
	}
}

// calls adds the calls. Records of exec and exit are not calls.
func (p *Process) calls(list []process.Call) {
	for i := range list {
		c := &list[i]
		if c.Op == schema.OpExit || c.Op == schema.OpExec {
			continue
		}
		p.Calls[c.Symbol] = &Call{OK: c.OK, Failed: c.Failed, Errors: c.Errors, Recorded: c.Recorded}
	}
}

func (p *Process) memory(q *leak.Process) {
	p.Ended, p.Evidence = q.Ended, q.Evidence
	p.LiveBytes, p.LiveAllocations, p.PeakBytes = q.LiveBytes, q.LiveAllocations, q.PeakBytes
	p.UnfreedBytes, p.UnfreedAllocations = q.UnfreedBytes, q.UnfreedAllocations
	p.ContextBytes, p.ContextAllocations = q.WithContextBytes, q.WithContextAllocations
	p.HostMemory = HostMemory{
		q.HostLiveBytes, q.HostLiveAllocations, q.Classes[schema.ClassPinned], q.Classes[schema.ClassRegistered],
	}
	p.calls(q.Calls)
	for class := range schema.NumClasses {
		if n := q.Classes[class]; n > 0 && class != schema.ClassNone {
			p.Classes[class.String()] = n
		}
	}
	for _, t := range q.Threads {
		p.Threads = append(p.Threads, Thread(t))
	}
	for _, g := range q.GPUs {
		uuid := cmp.Or(g.UUID, unknown)
		if p.GPUs[uuid] == nil {
			p.GPUs[uuid] = &GPU{Inferred: g.Inferred}
		}
		p.GPUs[uuid].LiveBytes += g.LiveBytes
		p.GPUs[uuid].Inferred = p.GPUs[uuid].Inferred && g.Inferred
		if g.Info != nil {
			i := g.Info
			p.GPUs[uuid].Info = &MemoryInfo{
				i.At, i.UsedBytes, i.TotalBytes, i.ProcessBytes, i.TrackedBytes, i.Unexplained(),
			}
		}
	}
	p.Exports = q.Exports
	p.Holders.Count, p.Holders.UnclosedAtExit = q.HolderCount, q.UnclosedHolders
	for _, h := range q.Holders {
		p.Holders.List = append(p.Holders.List, Holder{hex(h.Ptr), h.Class.String(), hex(h.Token), h.Owner, h.At})
	}
	for _, o := range q.Pools {
		p.Pools = append(p.Pools, Pool{
			hex(o.Handle), o.Ordinal, o.Imported, o.Destroyed, o.Limit, o.LiveBytes, o.LiveAllocations,
			o.ReservedBytes, known(o.ReservedAt), o.UsedBytes, known(o.UsedAt),
		})
	}
}

// kernel adds the launches of one function. Functions with the same name, for example in two modules, are summed.
func (p *Process) kernel(f *launch.Func) {
	p.Launches[f.Name] += f.Launches
	k := p.Kernels[f.Name]
	if k == nil {
		k = &Kernel{NameSource: "told"}
		p.Kernels[f.Name] = k
	}
	k.Launches += f.Launches
	k.FromGraphs += f.FromGraphs
	switch {
	case f.Mangled == "":
		k.NameSource = unknown
	case f.Read:
		k.NameSource = "read"
	}
}

func hex(v uint64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", v)
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

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
