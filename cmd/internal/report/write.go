package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

const (
	maxProcesses = 20 // shown in one report
	maxKernels   = 10 // shown per process
	maxAlerts    = 5
	rule         = "────────────────────────────────────────────────────────────────────────"
)

// Write prints a snapshot for a person: the largest processes, and the largest allocations of all processes. Its cost
// depends on its own size, not on the number of live allocations.
func (s *Snapshot) Write(w io.Writer, largest []leak.TopRow) error {
	out := bufio.NewWriter(w)
	writeHeader(out, s)
	top := map[schema.ProcessID][]leak.TopRow{}
	for _, a := range largest {
		top[a.ID] = append(top[a.ID], a)
	}
	shown := slices.DeleteFunc(slices.Clone(s.Processes), (*Process).idle)
	for i, q := range shown {
		if i == maxProcesses {
			fmt.Fprintf(out, "… and %d more processes (-o json shows all)\n", len(shown)-i)
			break
		}
		writeProcess(out, s, q, top[q.id])
	}
	if idle := len(s.Processes) - len(shown); idle > 0 {
		fmt.Fprintf(out, "\n%s ended without a call that gputap watches\n",
			app.Plural(uint64(idle), "process", "processes"))
	}
	for _, a := range s.Alerts[max(0, len(s.Alerts)-maxAlerts):] {
		fmt.Fprintf(out, "\nALERT %s %s: %s\n", a.Severity, a.Rule, a.Message)
	}
	return out.Flush()
}

// idle reports whether a process ended without a call that gputap watches. Helpers that only load the driver do.
func (p *Process) idle() bool {
	return p.Ended && len(p.Calls) == 0 && len(p.Copies) == 0 && p.PeakBytes == 0
}

func writeHeader(out io.Writer, s *Snapshot) {
	var live, count, running uint64
	for _, p := range s.Processes {
		live += p.LiveBytes
		count += p.LiveAllocations
		if !p.Ended {
			running++
		}
	}
	fmt.Fprintf(out, "%s\n%s   %s running, %d ended   live %s in %s   lost %s\n", rule,
		s.Time.Format("2006-01-02 15:04:05Z"), app.Plural(running, "process", "processes"),
		uint64(len(s.Processes))-running, app.Bytes(live), allocations(count), LostText(s.Lost))
	if len(s.Processes) == 0 {
		fmt.Fprintln(out, "no CUDA call so far")
	}
}

// LostText formats lost events by cause.
func LostText(lost map[string]uint64) string {
	if len(lost) == 0 {
		return "0"
	}
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(lost)) {
		parts = append(parts, fmt.Sprintf("%d (%s)", lost[cause], cause))
	}
	return strings.Join(parts, ", ")
}

func writeProcess(out io.Writer, s *Snapshot, p *Process, top []leak.TopRow) {
	fmt.Fprintf(out, "\nPID %d %s   %s", p.PID, p.Comm, userText(p))
	if p.Container != "" {
		fmt.Fprintf(out, "   container %.12s", p.Container)
	}
	if text := evidenceTexts[p.Evidence]; text != "" {
		fmt.Fprintf(out, "   [%s]", text)
	}
	fmt.Fprintln(out)
	writeMemory(out, p)
	writeVerdicts(out, p)
	writeTorch(out, p)
	writeCalls(out, p)
	writeThreads(out, s.Time, p, top)
	writeLaunches(out, p)
	writeGaps(out, p)
	writeCopies(out, p)
	writeGroups(out, p)
	if p.Waits.Calls > 0 {
		fmt.Fprintf(out, "  waited for the GPU %.3f s in %s\n", p.Waits.Seconds,
			app.Plural(p.Waits.Calls, "call", "calls"))
	}
	if len(p.Unseen.Functions) > 0 {
		fmt.Fprintf(out, "  functions without a probe, whose calls are not seen: %s\n",
			app.Shorten(strings.Join(p.Unseen.Functions, ", "), 200))
	}
}

var evidenceTexts = map[string]string{
	"late": "late: it began before gputap, which did not see its earlier calls",
	"gap":  "gap: events of it were lost",
}

func allocations(n uint64) string { return app.Plural(n, "allocation", "allocations") }

func writeMemory(out io.Writer, p *Process) {
	if p.lacks.memory {
		writeUnknown(out, "memory", "gputap-leak")
		return
	}
	if p.Ended {
		fmt.Fprintf(out, "  ended   unfreed at exit %s in %s   peak %s\n", app.Bytes(p.UnfreedBytes),
			allocations(p.UnfreedAllocations), app.Bytes(p.PeakBytes))
		return
	}
	fmt.Fprintf(out, "  live %s in %s   peak %s", app.Bytes(p.LiveBytes), allocations(p.LiveAllocations),
		app.Bytes(p.PeakBytes))
	if h := p.HostMemory; h.LiveAllocations > 0 {
		fmt.Fprintf(out, "   pinned host memory %s in %d", app.Bytes(h.LiveBytes), h.LiveAllocations)
	}
	fmt.Fprintln(out)
	if p.Holders.Count > 0 {
		references := app.Plural(p.Holders.Count, "reference to memory", "references to memory")
		fmt.Fprintf(out, "  holds %s of other processes%s\n", references, ownersText(p.Holders.List))
	}
}

// ownersText lists the known owners of the memory that is held.
func ownersText(list []Holder) string {
	var pids []uint32
	for _, h := range list {
		if h.OwnerPID != 0 {
			pids = append(pids, h.OwnerPID)
		}
	}
	if len(pids) == 0 {
		return ""
	}
	slices.Sort(pids)
	return fmt.Sprint(": PID ", strings.Trim(fmt.Sprint(slices.Compact(pids)), "[]"))
}

func writeCalls(out io.Writer, p *Process) {
	for _, symbol := range slices.Sorted(maps.Keys(p.Calls)) {
		c := p.Calls[symbol]
		fmt.Fprintf(out, "  %-28s %10d ok %8d failed", symbol, c.OK, c.Failed)
		for _, code := range slices.Sorted(maps.Keys(c.Errors)) {
			fmt.Fprintf(out, "   %s × %d", ResultText(code), c.Errors[code])
		}
		fmt.Fprintln(out)
	}
}

// ResultText is the name of a CUresult, or its number if the name is not known.
func ResultText(code uint32) string {
	return cmp.Or(leak.ResultName(code), fmt.Sprint("CUresult ", code))
}

// writeThreads groups the largest allocations by thread, the thread with the largest first.
func writeThreads(out io.Writer, now time.Time, p *Process, top []leak.TopRow) {
	type thread struct { // one that was renamed is several
		tid  uint32
		comm string
	}
	var order []thread
	shown := uint64(0)
	byThread := map[thread][]leak.TopRow{}
	for _, a := range top {
		of := thread{a.TID, a.ThreadComm}
		if byThread[of] == nil {
			order = append(order, of)
		}
		byThread[of] = append(byThread[of], a)
	}
	for _, of := range order {
		list := byThread[of]
		fmt.Fprintf(out, "  thread %d %s%s\n", of.tid, of.comm, threadText(p, of.tid, of.comm))
		for _, a := range list {
			what, age := fmt.Sprintf("0x%012x", a.Ptr), now.Sub(a.At).Round(time.Second).String()
			if a.Count > 1 {
				what, age = fmt.Sprintf("%d × %s", a.Count, app.Bytes(a.Bytes)), "oldest "+age
			}
			if a.Partial {
				what, age = "≥"+what, age+" or older"
			}
			fmt.Fprintf(out, "    %-16s  %-12s %-8s %11s  %s\n", what, gpuText(a.GPU, a.Inferred), a.Class,
				app.Bytes(a.TotalBytes), age)
			shown += a.Count
		}
	}
	if rest := p.LiveAllocations - min(shown, p.LiveAllocations); rest > 0 && len(top) > 0 {
		fmt.Fprintf(out, "    … and %d more, of the smallest size shown or less\n", rest)
	}
}

func threadText(p *Process, tid uint32, comm string) string {
	for _, t := range p.Threads {
		if t.TID == tid && t.Comm == comm {
			return fmt.Sprintf("   live %s in %d", app.Bytes(t.LiveBytes), t.LiveAllocations)
		}
	}
	return ""
}

// gpuText returns the beginning of a UUID, with ~ if the GPU is inferred.
func gpuText(uuid string, inferred bool) string {
	if uuid == "" {
		return "GPU unknown"
	}
	if inferred {
		return fmt.Sprintf("%.11s~", uuid)
	}
	return fmt.Sprintf("%.12s", uuid)
}

// gpuName returns the beginning of a UUID that a report has.
func gpuName(uuid string) string {
	if uuid == Unknown {
		return gpuText("", false)
	}
	return gpuText(uuid, false)
}

func writeLaunches(out io.Writer, p *Process) {
	if p.lacks.launches {
		writeUnknown(out, "launches", "gputap-launch")
		return
	}
	if len(p.Launches) == 0 && p.GraphLaunches == 0 {
		return
	}
	total := uint64(0)
	for _, n := range p.Launches {
		total += n
	}
	fmt.Fprintf(out, "  %s of %s   %s", app.Plural(total, "launch", "launches"),
		app.Plural(uint64(len(p.TopKernels)), "kernel", "kernels"),
		app.Plural(p.GraphLaunches, "graph launch", "graph launches"))
	if p.GraphLaunchesPartial > 0 {
		fmt.Fprintf(out, ", %d of them with unknown kernels", p.GraphLaunchesPartial)
	}
	fmt.Fprintln(out)
	writeTopKernels(out, p)
}

func writeCopies(out io.Writer, p *Process) {
	for _, direction := range slices.Sorted(maps.Keys(p.Copies)) {
		c := p.Copies[direction]
		one, many := "copy", "copies"
		if direction == "set" {
			one, many = "call", "calls"
		}
		fmt.Fprintf(out, "  %s %s in %s", direction, app.Bytes(c.Bytes), app.Plural(c.Calls, one, many))
		if c.BusySeconds > 0 {
			fmt.Fprintf(out, "   achieved %.2f GB/s over %.3f s", float64(c.Bytes-c.AsyncBytes)/c.BusySeconds/1e9,
				c.BusySeconds)
		}
		if c.AsyncCalls > 0 {
			fmt.Fprintf(out, "   %s of it submitted in %d asynchronous calls", app.Bytes(c.AsyncBytes), c.AsyncCalls)
		}
		fmt.Fprintln(out)
	}
}

// userText returns the user name that the host knows, or the uid, with its name if this machine knows it.
func userText(p *Process) string {
	if p.User != "" {
		return "user " + p.User
	}
	text := fmt.Sprint("uid ", p.UID)
	if u, err := user.LookupId(fmt.Sprint(p.UID)); err == nil {
		text += " (" + u.Username + ")"
	}
	return text
}
