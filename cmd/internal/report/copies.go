package report

import (
	"cmp"
	"fmt"
	"io"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/bandwidth"
)

// AddCopies adds a process of the bandwidth fold.
func (s *Snapshot) AddCopies(q *bandwidth.Process) {
	p := s.process(&q.Info)
	p.told.copies = true
	p.calls(q.Calls)
	for _, c := range q.Copies {
		sums := copyOf(&c)
		p.Copies[c.Word()] = &sums
	}
	p.copyGroups(q, s.features)
	p.Recorded += q.Recorded
	p.Waits = Waits{Calls: q.Waits.Calls, Seconds: float64(q.Waits.NS) / 1e9}
}

func copyOf(c *bandwidth.DirectionUse) Copy {
	return Copy{c.Calls, c.Bytes, float64(c.BusyNS) / 1e9, c.AsyncCalls, c.AsyncBytes}
}

// CopyGroup is the copies between one GPU and one class of host memory, in one direction and of one size class.
type CopyGroup struct {
	GPU        string    `json:"gpu"` // UUID or "unknown"
	Direction  string    `json:"direction"`
	Size       string    `json:"size"`
	HostMemory string    `json:"host_memory"`
	Calls      uint64    `json:"calls"`
	Bytes      uint64    `json:"bytes"`
	Sync       CopyUse   `json:"sync"`
	Async      CopyUse   `json:"async"`
	Ended      *CopyUse  `json:"ended"`        // null without the features launch and sync
	Behind     *CopyUse  `json:"ended_behind"` // the same
	Throughput *CopyRate `json:"throughput"`   // null if unknown
}

// CopyUse sums copies.
type CopyUse struct {
	Calls   uint64  `json:"calls"`
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// CopyRate is a throughput, or a lower bound of it.
type CopyRate struct {
	BytesPerSecond float64 `json:"bytes_per_second"`
	AtLeast        bool    `json:"at_least"`
}

// copyGroups adds the groups of copies of one process.
func (p *Process) copyGroups(q *bandwidth.Process, f features) {
	for i := range q.Groups {
		g := &q.Groups[i]
		one := CopyGroup{
			GPU: cmp.Or(g.GPU, Unknown), Direction: g.Direction.String(), Size: g.Size.String(),
			HostMemory: g.HostMem.String(), Calls: g.Sync.Calls + g.Async.Calls, Bytes: g.Sync.Bytes + g.Async.Bytes,
			Sync: copyUse(g.Sync), Async: copyUse(g.Async), Throughput: throughputOf(g),
		}
		if f.paired {
			one.Ended, one.Behind = new(copyUse(g.Ended)), new(copyUse(g.Behind))
		}
		p.CopyGroups = append(p.CopyGroups, one)
	}
}

func copyUse(u bandwidth.Use) CopyUse { return CopyUse{u.Calls, u.Bytes, float64(u.NS) / 1e9} }

// throughputOf returns the throughput of the synchronous copies, else of those that ended, else of those behind
// kernels.
func throughputOf(g *bandwidth.Group) *CopyRate {
	for i, u := range []bandwidth.Use{g.Sync, g.Ended, g.Behind} {
		if u.NS > 0 && u.Bytes > 0 {
			return &CopyRate{float64(u.Bytes) / (float64(u.NS) / 1e9), i > 0}
		}
	}
	return nil
}

const maxGroups = 8 // shown per process

// writeGroups prints the table of copies.
func writeGroups(out io.Writer, p *Process) {
	if len(p.CopyGroups) == 0 {
		return
	}
	fmt.Fprintf(out, "    %-12s %-7s %-8s %-8s %9s %11s %15s\n", "GPU", "copies", "size", "host", "calls", "bytes",
		"throughput")
	needs := false
	for _, g := range p.CopyGroups[:min(maxGroups, len(p.CopyGroups))] {
		rate := "submitted only"
		switch {
		case g.Throughput != nil && g.Throughput.AtLeast:
			rate = fmt.Sprintf("≥ %s GB/s", app.Rate(g.Throughput.BytesPerSecond/1e9))
		case g.Throughput != nil:
			rate = app.Rate(g.Throughput.BytesPerSecond/1e9) + " GB/s"
		case g.Ended == nil && p.Waits.Calls == 0 && !p.features.known:
			rate, needs = Unknown, true
		case g.Ended == nil && p.Waits.Calls == 0: // with waits, the features are on
			rate, needs = "needs sync", true
		}
		fmt.Fprintf(out, "    %-12.12s %-7s %-8s %-8s %9d %11s %15s\n", g.GPU, g.Direction, g.Size, g.HostMemory,
			g.Calls, app.Bytes(g.Bytes), rate)
	}
	if more := len(p.CopyGroups) - maxGroups; more > 0 {
		fmt.Fprintf(out, "    … and %d more rows (-o json shows all)\n", more)
	}
	if needs {
		fmt.Fprintln(out, "    throughput of asynchronous copies: "+
			p.features.pairing("waited for them", "launch, copy and sync"))
	}
}
