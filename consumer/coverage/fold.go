package coverage

import (
	"cmp"
	"slices"
	"sync"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const maxHosts = 10_000

// Fold is the last heartbeat of each host.
type Fold struct {
	mu    sync.Mutex
	hosts map[snapshot.HostID]*Host

	out snapshot.Writer
}

// Host is what one host said last.
type Host struct {
	Cluster   string
	Host      string
	Linux     string
	Producer  string // version
	Libraries []schema.Library
	GPUs      []schema.GPU
	Processes []Process

	boot     string
	booted   int64 // wall time of the boot: orders boots
	run, seq uint64
}

// Process is what one process got from the driver besides the probed functions.
type Process struct {
	process.Info
	Asked        uint32   // driver functions that it asked for by name
	Outside      []string // of those, the ones that matter and have no probe
	ExportTables uint32   // tables of unnamed functions
}

// New returns an empty Fold.
func New() *Fold { return &Fold{hosts: map[snapshot.HostID]*Host{}} }

// Name of the fold.
func (f *Fold) Name() string { return "coverage" }

// Kinds that the fold reads.
func (f *Fold) Kinds() []schema.Kind { return []schema.Kind{schema.KindHost} }

// Apply notes one heartbeat; older ones than the last are passed over.
func (f *Fold) Apply(b *schema.Batch) error {
	if b.Kind != schema.KindHost {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := snapshot.HostID{Cluster: b.Cluster, Host: b.Host}
	if old := f.hosts[id]; old != nil && old.after(b) {
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
	h.keep(f.hosts[id])
	f.hosts[id] = h
	return nil
}

// Forget lets go of a host.
func (f *Fold) Forget(cluster, host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.hosts, snapshot.HostID{Cluster: cluster, Host: host})
}

// clone copies what is a batch's. Nothing is nil: an empty slice or none depends on what the batch held before.
func clone[T any](all []T) []T { return append([]T(nil), all...) }

func (h *Host) id() snapshot.HostID { return snapshot.HostID{Cluster: h.Cluster, Host: h.Host} }

// after reports whether h is from after batch b. Runs compare only within a boot.
func (h *Host) after(b *schema.Batch) bool {
	if h.boot != b.BootID {
		return h.booted > b.ClockOffset
	}
	return b.Run < h.run || b.Run == h.run && b.Seq <= h.seq
}

// mostKept bounds the processes of a host.
const mostKept = 1024

// keep goes on with processes that are no longer told of, since they ended: the youngest.
func (h *Host) keep(old *Host) {
	if old == nil || old.boot != h.boot {
		return
	}
	told := map[schema.ProcessID]bool{}
	for i := range h.Processes {
		told[h.Processes[i].ID] = true
	}
	for _, p := range old.Processes {
		if !told[p.ID] {
			h.Processes = append(h.Processes, p)
		}
	}
	slices.SortFunc(h.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.ID.Start, a.ID.Start), cmp.Compare(b.ID.PID, a.ID.PID))
	})
	h.Processes = h.Processes[:min(len(h.Processes), mostKept)]
}

// evict lets the host go that was booted first.
func (f *Fold) evict() {
	var oldest *Host
	for _, h := range f.hosts {
		if oldest == nil || cmp.Or(cmp.Compare(h.booted, oldest.booted), h.id().Compare(oldest.id())) < 0 {
			oldest = h
		}
	}
	delete(f.hosts, oldest.id())
}

// Report lists the hosts by cluster and name, their processes by PID.
func (f *Fold) Report() []Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Host, 0, len(f.hosts))
	for _, h := range f.hosts {
		c := *h
		c.Processes = slices.SortedFunc(slices.Values(h.Processes), func(a, b Process) int {
			return cmp.Or(cmp.Compare(a.ID.PID, b.ID.PID), cmp.Compare(a.ID.Start, b.ID.Start))
		})
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Host) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Host, b.Host)) })
	return list
}
