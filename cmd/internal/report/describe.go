package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
)

const maxThreads = 10 // shown of one process

// Describe prints everything about a process for a person.
func (p *Process) Describe(w io.Writer, now time.Time) {
	out := bufio.NewWriter(w)
	defer func() { _ = out.Flush() }() // w keeps its errors
	state := "running"
	switch {
	case p.lacks.memory:
		state = "state unknown"
	case p.Ended:
		state = "ended"
	}
	fmt.Fprintf(out, "%s/%s/%d %s   %s, %s   since %s (%s)\n", p.Cluster, p.Host, p.PID, p.Comm, owner(p), state,
		p.Start.UTC().Format("2006-01-02 15:04:05Z"), now.Sub(p.Start).Round(time.Second))
	if text := evidenceTexts[p.Evidence]; text != "" {
		fmt.Fprintf(out, "  %s\n", text)
	}
	for _, row := range [][2]string{
		{"exe", p.Exe}, {"job", p.JobText()}, {"container", p.Container}, {"pod", p.Pod}, {"unit", p.Unit},
		{"cgroup", p.Cgroup},
	} {
		if row[1] != "" {
			fmt.Fprintf(out, "  %-9s %s\n", row[0], row[1])
		}
	}
	if p.silent && !p.Ended {
		fmt.Fprintf(out, "  silent: nothing was heard of its host for %s; figures and ages are from then\n",
			now.Sub(*p.Heard).Round(time.Second))
		now = *p.Heard
	}
	writeMemory(out, p)
	writeVerdicts(out, p)
	writeTorch(out, p)
	writeGPUs(out, p)
	writeThreadUses(out, p)
	writeLargest(out, p, now)
	writeBlocks(out, p, now)
	writeCalls(out, p)
	writeLaunches(out, p)
	writeGaps(out, p)
	writeCopies(out, p)
	writeGroups(out, p)
	if p.lacks.copies {
		writeUnknown(out, "copies and waits", "gputap-bandwidth")
	}
	if p.Waits.Calls > 0 {
		fmt.Fprintf(out, "  waited for the GPU %.3f s in %s\n", p.Waits.Seconds,
			app.Plural(p.Waits.Calls, "call", "calls"))
	}
	if len(p.Unseen.Functions) > 0 {
		fmt.Fprintf(out, "  functions without a probe, whose calls are not seen: %s\n",
			app.Shorten(strings.Join(p.Unseen.Functions, ", "), 200))
	}
}

// owner is the user name that the host of the process knows, or the uid. This machine may give the uid another name.
func owner(p *Process) string {
	if p.User != "" {
		return "user " + p.User
	}
	return fmt.Sprint("uid ", p.UID)
}

func writeGPUs(out io.Writer, p *Process) {
	for _, uuid := range slices.Sorted(maps.Keys(p.GPUs)) {
		g := p.GPUs[uuid]
		if g.LiveBytes == 0 && g.Info == nil {
			continue
		}
		fmt.Fprintf(out, "  GPU %s   live %s", uuid, app.Bytes(g.LiveBytes))
		if g.Inferred {
			fmt.Fprint(out, " (inferred)")
		}
		if g.Info != nil {
			fmt.Fprintf(out, "   driver: %s of %s used", app.Bytes(g.Info.UsedBytes), app.Bytes(g.Info.TotalBytes))
		}
		fmt.Fprintln(out)
	}
	for _, class := range slices.SortedFunc(maps.Keys(p.Classes), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Classes[b], p.Classes[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(out, "  class %-10s live %s\n", class, app.Bytes(p.Classes[class]))
	}
}

func writeThreadUses(out io.Writer, p *Process) {
	for _, t := range p.Threads[:min(maxThreads, len(p.Threads))] {
		fmt.Fprintf(out, "  thread %d %s   live %s in %s\n", t.TID, t.Comm, app.Bytes(t.LiveBytes),
			allocations(t.LiveAllocations))
	}
	if more := len(p.Threads) - maxThreads; more > 0 {
		fmt.Fprintf(out, "  … and %d more threads\n", more)
	}
}
