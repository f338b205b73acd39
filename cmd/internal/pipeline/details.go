package pipeline

import (
	"fmt"
	"time"

	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// MemoryInfo is the last result of cuMemGetInfo in a process, and gputap's live memory of that GPU at the same time.
type MemoryInfo struct {
	Time         time.Time `json:"time"`
	UsedBytes    uint64    `json:"used_bytes"`
	TotalBytes   uint64    `json:"total_bytes"`
	ProcessBytes uint64    `json:"process_bytes"`
	TrackedBytes uint64    `json:"tracked_bytes"`     // of all processes of the host
	Unexplained  int64     `json:"unexplained_bytes"` // UsedBytes - TrackedBytes
}

func newMemoryInfo(i *leak.MemInfo) *MemoryInfo {
	return &MemoryInfo{i.At, i.UsedBytes, i.TotalBytes, i.ProcessBytes, i.TrackedBytes, i.Unexplained()}
}

// Holders are references to memory of others that the process opened and did not close.
type Holders struct {
	Count          uint64   `json:"count"`
	UnclosedAtExit uint64   `json:"unclosed_at_exit"`
	List           []Holder `json:"list"` // the newest 100
}

// Holder is one reference to memory of another process or API.
type Holder struct {
	Address  string    `json:"address"` // or handle; "" if only mappings hold the memory
	Class    string    `json:"class"`
	Token    string    `json:"token"`
	OwnerPID uint32    `json:"owner_pid"` // 0 if unknown
	Since    time.Time `json:"since"`
}

// Pool is a memory pool of a process.
type Pool struct {
	Handle          string     `json:"handle"`
	Ordinal         int        `json:"ordinal"` // of the GPU as the process numbers it; -1 if unknown
	Imported        bool       `json:"imported"`
	Destroyed       bool       `json:"destroyed"`
	LimitBytes      uint64     `json:"limit_bytes"`
	LiveBytes       uint64     `json:"live_bytes"`
	LiveAllocations uint64     `json:"live_allocations"`
	ReservedBytes   uint64     `json:"reserved_bytes"`
	ReservedTime    *time.Time `json:"reserved_time"` // null if the process never asked
	UsedBytes       uint64     `json:"used_bytes"`
	UsedTime        *time.Time `json:"used_time"`
}

// Kernel counts the launches of one kernel name.
type Kernel struct {
	Launches   uint64 `json:"launches"`
	FromGraphs uint64 `json:"from_graphs"`
	NameSource string `json:"name_source"` // told, read or unknown
}

// details adds the figures about contexts, holders and pools.
func (p *Process) details(q *leak.Process) {
	for class := range schema.NumClasses {
		if n := q.Classes[class]; n > 0 && class != schema.ClassNone {
			p.Classes[class.String()] = n
		}
	}
	p.ContextBytes, p.ContextAllocations = q.WithContextBytes, q.WithContextAllocations
	p.Exports = q.Exports
	p.Holders.Count, p.Holders.UnclosedAtExit = q.HolderCount, q.UnclosedHolders
	for _, h := range q.Holders {
		p.Holders.List = append(p.Holders.List, Holder{hex(h.Ptr), h.Class.String(), hex(h.Token), h.Owner, h.At})
	}
	for i := range q.Pools {
		o := &q.Pools[i]
		p.Pools = append(p.Pools, Pool{
			Handle: hex(o.Handle), Ordinal: o.Ordinal, Imported: o.Imported, Destroyed: o.Destroyed,
			LimitBytes: o.Limit,
			LiveBytes:  o.LiveBytes, LiveAllocations: o.LiveAllocations, ReservedBytes: o.ReservedBytes,
			ReservedTime: known(o.ReservedAt), UsedBytes: o.UsedBytes, UsedTime: known(o.UsedAt),
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
