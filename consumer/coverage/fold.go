package coverage

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const maxHosts = 10_000

// Fold keeps the last heartbeat of each host.
type Fold struct {
	mu    sync.Mutex
	hosts map[snapshot.HostID]*Host

	out snapshot.Writer
}

// Host is the last heartbeat of one host.
type Host struct {
	Cluster   string
	Host      string
	Linux     string
	Producer  string // its version
	Libraries []schema.Library
	GPUs      []schema.GPU
	Processes []Process

	boot     string
	booted   int64 // wall time of the boot; orders boots
	run, seq uint64
}

// Process is a process with the driver functions that it obtained and that have no probe.
type Process struct {
	process.Info
	Asked        uint32   // driver functions that it looked up by name
	Outside      []string // the part of them that handles memory or submits work and has no probe
	ExportTables uint32   // tables of unnamed functions that it obtained
}

// New returns an empty Fold.
func New() *Fold { return &Fold{hosts: map[snapshot.HostID]*Host{}} }

// Name returns the fold's name.
func (f *Fold) Name() string { return "coverage" }

// Kinds returns the kinds of batches that the fold reads.
func (f *Fold) Kinds() []schema.Kind { return []schema.Kind{schema.KindHost} }

// Apply stores a heartbeat. It ignores heartbeats older than the stored one.
func (f *Fold) Apply(b *schema.Batch) error {
	if b.Kind != schema.KindHost {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := snapshot.HostID{Cluster: b.Cluster, Host: b.Host}
	if old := f.hosts[id]; old != nil && old.newerThan(b) {
		return nil
	}
	if len(f.hosts) >= maxHosts && f.hosts[id] == nil {
		f.evict()
	}
	h := &Host{
		Cluster: b.Cluster, Host: b.Host, Linux: b.Linux, Producer: b.Producer, GPUs: clone(b.GPUs),
		boot: b.BootID, booted: b.ClockOffset, run: b.Run, seq: b.Seq,
	}
	for _, l := range b.Libraries {
		l.Absent, l.Failed = clone(l.Absent), clone(l.Failed)
		h.Libraries = append(h.Libraries, l)
	}
	for _, c := range b.Coverage {
		p := &b.Processes[c.Process]
		h.Processes = append(h.Processes, Process{
			Info: process.NewInfo(b, p), Asked: c.Asked, Outside: clone(c.Outside), ExportTables: c.ExportTables,
		})
	}
	h.addEnded(f.hosts[id])
	f.hosts[id] = h
	return nil
}

// Forget removes a host.
func (f *Fold) Forget(cluster, host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.hosts, snapshot.HostID{Cluster: cluster, Host: host})
}

// clone copies a slice that belongs to a batch. It returns nil for an empty one: whether the batch has nil or an
// empty slice depends on earlier batches.
func clone[T any](all []T) []T { return append([]T(nil), all...) }

func (h *Host) id() snapshot.HostID { return snapshot.HostID{Cluster: h.Cluster, Host: h.Host} }

// newerThan reports whether h is newer than batch b. Runs are comparable only within a boot.
func (h *Host) newerThan(b *schema.Batch) bool {
	if h.boot != b.BootID {
		return h.booted > b.ClockOffset
	}
	return b.Run < h.run || b.Run == h.run && b.Seq <= h.seq
}

// maxProcesses is the limit of processes per host.
const maxProcesses = 1024

// addEnded adds the processes of the previous heartbeat that have ended since, the youngest up to the limit.
func (h *Host) addEnded(old *Host) {
	if old == nil || old.boot != h.boot {
		return
	}
	runs := map[schema.ProcessID]bool{}
	for i := range h.Processes {
		runs[h.Processes[i].ID] = true
	}
	for _, p := range old.Processes {
		if !runs[p.ID] {
			h.Processes = append(h.Processes, p)
		}
	}
	slices.SortFunc(h.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.ID.Start, a.ID.Start), cmp.Compare(b.ID.PID, a.ID.PID))
	})
	h.Processes = h.Processes[:min(len(h.Processes), maxProcesses)]
}

// evict removes the host with the oldest boot.
func (f *Fold) evict() {
	oldest := slices.MinFunc(slices.Collect(maps.Values(f.hosts)), func(a, b *Host) int {
		return cmp.Or(cmp.Compare(a.booted, b.booted), a.id().Compare(b.id()))
	})
	delete(f.hosts, oldest.id())
}

// Report returns the hosts ordered by cluster and name, their processes by PID.
func (f *Fold) Report() []Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Host, 0, len(f.hosts))
	for _, id := range slices.SortedFunc(maps.Keys(f.hosts), snapshot.HostID.Compare) {
		h := *f.hosts[id]
		h.Processes = slices.SortedFunc(slices.Values(h.Processes), func(a, b Process) int {
			return cmp.Or(cmp.Compare(a.ID.PID, b.ID.PID), cmp.Compare(a.ID.Start, b.ID.Start))
		})
		list = append(list, h)
	}
	return list
}
