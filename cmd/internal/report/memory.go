package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// SilentAfter is how long nothing was heard of a host that is silent: three heartbeats.
const SilentAfter = 30 * time.Second

// addTracker adds the counters and processes of the leak fold, which a reader feeds.
func (s *Snapshot) addTracker(report leak.Report, reader *consumer.Reader) {
	c := report.Counters
	s.Counters.UnmatchedFrees += c.UnmatchedFrees
	s.Counters.ReallocOverLive += c.ReallocOverLive
	s.Counters.LateFrees += c.LateFrees
	s.Counters.UnseenEnds += c.UnseenEnds
	s.Counters.NullFrees += c.NullFrees
	s.Counters.UnknownHandles += c.UnknownHandles
	s.Counters.UnknownContexts += c.UnknownContexts
	for i := range report.Processes {
		q := &report.Processes[i]
		s.AddMemory(q, reader.Heard(q.ID.Cluster, q.ID.Host))
	}
}

// AddMemory adds a process of the leak fold. heard is when NATS stored the last batch of its host; zero: unknown.
func (s *Snapshot) AddMemory(q *leak.Process, heard time.Time) {
	p := s.process(&q.Info)
	p.memory(q)
	p.told.memory = true
	p.Heard = known(heard)
	p.silent = p.Heard != nil && s.Time.Sub(*p.Heard) > SilentAfter
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
		uuid := cmp.Or(g.UUID, Unknown)
		if p.GPUs[uuid] == nil {
			p.GPUs[uuid] = &GPU{Inferred: g.Inferred}
		}
		p.GPUs[uuid].LiveBytes += g.LiveBytes
		if g.UUID != "" {
			p.GPUs[uuid].total = max(p.GPUs[uuid].total, g.TotalBytes)
		}
		p.GPUs[uuid].Inferred = p.GPUs[uuid].Inferred && g.Inferred
		if g.Info != nil {
			i := g.Info
			p.GPUs[uuid].Info = &MemoryInfo{
				i.At, i.UsedBytes, i.TotalBytes, i.ProcessBytes, i.TrackedBytes, i.Unexplained(),
			}
		}
	}
	for i := range q.Verdicts {
		p.Verdicts = append(p.Verdicts, verdictOf(&q.Verdicts[i], q))
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

// Verdict says whether the memory of a process on one GPU grows without end.
type Verdict struct {
	GPU               string     `json:"gpu"` // UUID, or "unknown"
	State             string     `json:"state"`
	SuspectBytes      uint64     `json:"suspect_bytes"`
	SlopeBytesPerHour uint64     `json:"slope_bytes_per_hour"`
	Since             *time.Time `json:"since"`           // when growth began; null: there is none
	FullInSeconds     *float64   `json:"full_in_seconds"` // 0: it is full; null: unknown, or no growth
	Why               string     `json:"why"`
	Groups            []Group    `json:"groups"`
	PeakBytes         uint64     `json:"peak_bytes"`
	PeakTime          *time.Time `json:"peak_time"`
}

// Group is allocations that explain growth.
type Group struct {
	TID           uint32  `json:"tid"`
	Thread        string  `json:"thread"`
	Class         string  `json:"class"`
	SizeClass     uint64  `json:"size_class"` // bytes of the smallest: a power of two
	Bytes         uint64  `json:"bytes"`
	Allocations   uint64  `json:"allocations"`
	OldestSeconds float64 `json:"oldest_seconds"` // age when the verdict was given
}

func verdictOf(v *leak.Verdict, q *leak.Process) Verdict {
	out := Verdict{
		GPU: cmp.Or(v.GPU, Unknown), State: v.State.String(), SuspectBytes: v.SuspectBytes,
		SlopeBytesPerHour: v.SlopeBytesPerHour, Since: known(v.Since), Why: v.Why, Groups: []Group{},
	}
	if v.FullIn > 0 || v.Full {
		seconds := v.FullIn.Seconds()
		out.FullInSeconds = &seconds
	}
	for _, g := range v.Groups {
		out.Groups = append(out.Groups, Group{
			g.TID, g.Thread, g.Class, g.SizeClass, g.Bytes, g.Allocations, v.At.Sub(g.Oldest).Seconds(),
		})
	}
	for _, g := range q.GPUs {
		if g.UUID == v.GPU && g.Ordinal == v.Ordinal {
			out.PeakBytes, out.PeakTime = g.PeakBytes, known(g.PeakAt)
		}
	}
	return out
}

// writeVerdicts prints the verdicts of processes that are old enough to have one.
func writeVerdicts(out io.Writer, p *Process) {
	for i := range p.Verdicts {
		v := &p.Verdicts[i]
		if v.State == trend.Warming.String() {
			continue
		}
		fmt.Fprintf(out, "  %s %s: %s%s\n", v.GPUText(), v.State, v.Why, v.FullText())
		for _, g := range v.Groups {
			fmt.Fprintf(out, "    %s in %s of %s and more (%s), thread %d %s, oldest %s\n", app.Bytes(g.Bytes),
				allocations(g.Allocations), app.Bytes(g.SizeClass), g.Class, g.TID, g.Thread,
				time.Duration(g.OldestSeconds*float64(time.Second)).Round(time.Second))
		}
	}
}

// GPUText is the beginning of the UUID.
func (v *Verdict) GPUText() string { return gpuName(v.GPU) }

// FullText says when the GPU is full at the rate of the verdict, "" if that is not known.
func (v *Verdict) FullText() string {
	switch {
	case v.FullInSeconds == nil:
		return ""
	case *v.FullInSeconds == 0:
		return "; the GPU is full"
	}
	full := max(time.Minute, time.Duration(*v.FullInSeconds*float64(time.Second)).Round(time.Minute))
	return "; the GPU is full in " + strings.TrimSuffix(full.String(), "0s")
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
