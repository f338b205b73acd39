package answer

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

func (s *Snapshot) addMemory(report leak.Report) {
	c := report.Counters
	s.Counters = Counters{
		UnmatchedFrees: c.UnmatchedFrees, ReallocOverLive: c.ReallocOverLive, LateFrees: c.LateFrees,
		UnseenEnds: c.UnseenEnds, NullFrees: c.NullFrees, UnknownHandles: c.UnknownHandles,
		UnknownContexts: c.UnknownContexts,
	}
	for i := range report.Processes {
		s.addProcess(&report.Processes[i])
	}
}

func (s *Snapshot) addProcess(q *leak.Process) { s.process(&q.Info).memory(q) }

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

// memoryRows are the processes with the most live memory first, and of equal ones that with the most unfreed memory.
func memoryRows(t *leak.Tracker, q *query.Question) (iter.Seq[any], int) {
	rows := selected(t.Report().Processes, q, func(p *leak.Process) *process.Info { return &p.Info })
	if !q.Detail {
		for i := range rows {
			p := &rows[i]
			p.Calls, p.Threads, p.Holders, p.Pools = nil, nil, nil, nil
		}
	}
	slices.SortStableFunc(rows, func(a, b leak.Process) int { return cmp.Compare(b.UnfreedBytes, a.UnfreedBytes) })
	return largest(rows, q.Limit, func(p *leak.Process) uint64 { return p.LiveBytes })
}
