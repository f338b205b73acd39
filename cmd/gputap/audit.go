package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/pipeline"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/library"
)

// auditProcess checks which driver functions of a running process gputap sees and which it cannot see. It reads the
// process's libraries and memory, and then watches the process for a while.
func auditProcess(ctx context.Context, pid uint32, forTime time.Duration, libraries []string) []finding {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return []finding{{
			Check: "process", Status: statusFail, Found: fmt.Sprintf("no process %d", pid),
			Remedy: "use the pid of a running process on this host",
		}}
	}
	rows := []finding{{Check: "process", Status: statusOK, Found: fmt.Sprintf("%d %s", pid,
		strings.TrimSpace(string(comm)))}}
	holdings, err := library.Audit(pid)
	if err != nil {
		return append(rows, finding{Check: "driver", Status: statusFail, Found: err.Error(),
			Remedy: "run as root or with CAP_SYS_PTRACE"})
	}
	if len(holdings) == 0 {
		rows = append(rows, finding{
			Check: "driver", Status: statusWarn, Found: "the process has not mapped libcuda.so",
			Remedy: "try again after it has called cuInit; some programs never use CUDA",
		})
	}
	for i := range holdings {
		rows = append(rows, checkHolding(&holdings[i])...)
	}
	return append(rows, watchProcess(ctx, pid, forTime, libraries)...)
}

func checkHolding(h *library.Holding) []finding {
	l := &h.Library
	driver := finding{Check: "driver", Status: statusOK, Found: fmt.Sprintf("%s: %d functions to probe", l.Path,
		l.Attached)}
	if len(l.Absent) > 0 {
		driver.Found += fmt.Sprintf("; absent in this version: %s", app.Shorten(strings.Join(l.Absent, ", "), 300))
	}
	held := finding{
		Check: "holds", Status: statusOK,
		Found: fmt.Sprintf("pointers to %d driver functions in its data, %d of them with a probe",
			h.Functions, h.Probed),
	}
	if len(h.Outside) > 0 {
		held.Status = statusWarn
		held.Found += "; without a probe: " + strings.Join(h.Outside, ", ")
		held.Remedy = withoutRemedy
	}
	return []finding{driver, held}
}

// withoutRemedy stands beside functions that gputap does not probe.
const withoutRemedy = "none; calls of these functions are missing from all figures of this process"

// watchProcess watches one process for a while.
func watchProcess(ctx context.Context, pid uint32, forTime time.Duration, libraries []string) []finding {
	cfg := config.DefaultProducer()
	cfg.Features = []string{"memory", "launch", "copy", "sync"}
	cfg.Filter.PID = []string{strconv.FormatUint(uint64(pid), 10)}
	cfg.Libraries = libraries
	pipe, err := pipeline.New(ctx, config.RunCommand{Producer: cfg}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{{Check: "watch", Status: statusFail, Found: err.Error(),
			Remedy: "run gputap doctor without --pid"}}
	}
	defer pipe.Close()
	pipe.Start()
	select {
	case <-ctx.Done():
	case <-time.After(forTime):
	case <-pipe.ProducerEnded():
	}
	if err := pipe.Drain(); err != nil {
		return []finding{{Check: "watch", Status: statusFail, Found: err.Error(), Remedy: "run gputap doctor again"}}
	}
	s := pipe.Snapshot()
	var rows []finding
	for _, h := range s.Hosts {
		for _, l := range h.Libraries {
			if len(l.Failed) > 0 {
				rows = append(rows, finding{
					Check: "probes", Status: statusWarn, Found: l.Path + ": Linux rejected the probes of " +
						strings.Join(l.Failed, ", "),
					Remedy: "calls of these functions are not seen; the log of gputap run has the reason",
				})
			}
		}
	}
	for _, p := range s.Processes {
		if p.PID == pid {
			return append(rows, checkWatched(p, forTime, s.Lost)...)
		}
	}
	return append(rows, finding{
		Check: "watch", Status: statusWarn, Found: fmt.Sprintf("no CUDA call in %s", forTime),
		Remedy: "watch longer with --for, or wait until the process uses the GPU",
	})
}

// startFirst is the remedy for all that happened before gputap started.
const startFirst = "start gputap before the program"

func checkWatched(p *pipeline.Process, forTime time.Duration, lost map[string]uint64) []finding {
	var calls uint64
	symbols := slices.SortedFunc(maps.Keys(p.Calls), func(a, b string) int {
		return cmp.Compare(p.Calls[b].OK, p.Calls[a].OK)
	})
	for _, c := range p.Calls {
		calls += c.OK + c.Failed
	}
	watch := finding{Check: "watch", Status: statusOK, Found: fmt.Sprintf("%s in %s, most often %s",
		app.Plural(calls, "call", "calls"), forTime, strings.Join(symbols[:min(3, len(symbols))], ", "))}
	if len(lost) > 0 {
		watch.Status, watch.Found = statusWarn, fmt.Sprintf("%s; events were lost: %s", watch.Found,
			pipeline.LostText(lost))
		watch.Remedy = "give gputap more CPU time or larger rings"
	}
	rows := []finding{watch}
	if p.Evidence == "late" {
		rows = append(rows, finding{
			Check: "before", Status: statusWarn,
			Found:  "the process began before this check, so its earlier allocations, names and contexts were not seen",
			Remedy: startFirst,
		})
	}
	if p.Unseen.Asked > 0 || p.Unseen.ExportTables > 0 {
		f := finding{Check: "asked for", Status: statusOK, Found: fmt.Sprintf("%s by name, %s of unnamed functions",
			app.Plural(uint64(p.Unseen.Asked), "function", "functions"), app.Plural(uint64(p.Unseen.ExportTables),
				"table", "tables"))}
		if len(p.Unseen.Functions) > 0 {
			f.Status = statusWarn
			f.Found += "; without a probe: " + strings.Join(p.Unseen.Functions, ", ")
			f.Remedy = withoutRemedy
		}
		rows = append(rows, f)
	}
	for uuid, g := range p.GPUs {
		if g.Inferred {
			rows = append(rows, finding{Check: "GPU", Status: statusWarn, Found: uuid +
				" is inferred from the device file that the process has open",
				Remedy: startFirst})
		}
		if i := g.Info; i != nil {
			rows = append(rows, finding{Check: "memory", Status: statusOK, Found: fmt.Sprintf(
				"cuMemGetInfo of %s: %s used; gputap tracks %s of this process and %s of all; "+
					"%s are contexts, code or earlier allocations",
				uuid, app.Bytes(i.UsedBytes), app.Bytes(i.ProcessBytes), app.Bytes(i.TrackedBytes),
				app.Bytes(uint64(max(i.Unexplained, 0))))})
		}
	}
	return rows
}
