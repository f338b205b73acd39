package main

import (
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
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/library"
)

// auditProcess says what gputap sees of one running process and what it cannot: first what it has mapped
// and holds, then, for a while, what it does.
func auditProcess(ctx context.Context, pid uint32, forTime time.Duration, libraries []string) []finding {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return []finding{{
			Check: "process", Status: statusFail, Found: fmt.Sprintf("no process %d", pid), Remedy: "name a running process, by its PID on this host",
		}}
	}
	rows := []finding{{Check: "process", Status: statusOK, Found: fmt.Sprintf("%d %s", pid, strings.TrimSpace(string(comm)))}}
	holdings, err := library.Audit(pid)
	if err != nil {
		return append(rows, finding{Check: "driver", Status: statusFail, Found: err.Error(), Remedy: "run as root or with CAP_SYS_PTRACE"})
	}
	if len(holdings) == 0 {
		rows = append(rows, finding{
			Check: "driver", Status: statusWarn, Found: "no libcuda.so mapped: it has not used CUDA yet, or has no part in it",
			Remedy: "look again when it has called cuInit",
		})
	}
	for i := range holdings {
		rows = append(rows, checkHolding(&holdings[i])...)
	}
	return append(rows, watchProcess(ctx, pid, forTime, libraries)...)
}

func checkHolding(h *library.Holding) []finding {
	l := &h.Library
	driver := finding{Check: "driver", Status: statusOK, Found: fmt.Sprintf("%s: %d functions to probe", l.Path, l.Attached)}
	if len(l.Absent) > 0 {
		driver.Found += fmt.Sprintf("; not in this version: %s", shorten(strings.Join(l.Absent, ", "), 300))
	}
	held := finding{
		Check: "holds", Status: statusOK,
		Found: fmt.Sprintf("the addresses of %d driver functions in its data, %d of them probed", h.Functions, h.Probed),
	}
	if len(h.Outside) > 0 {
		held.Status = statusWarn
		held.Found += "; if called these are not seen: " + strings.Join(h.Outside, ", ")
		held.Remedy = "none here: what they do is missing from every figure of this process"
	}
	return []finding{driver, held}
}

// watchProcess attaches to one process for a while.
func watchProcess(ctx context.Context, pid uint32, forTime time.Duration, libraries []string) []finding {
	cfg := config.DefaultProducer()
	cfg.Features = []string{"memory", "launch", "copy", "sync"}
	cfg.Filter.PID = []string{strconv.FormatUint(uint64(pid), 10)}
	cfg.Libraries = libraries
	pipe, err := newPipeline(ctx, config.RunCommand{Producer: cfg}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{{Check: "watch", Status: statusFail, Found: err.Error(), Remedy: "see the checks that gputap doctor makes without --pid"}}
	}
	defer pipe.close()
	pipe.start()
	select {
	case <-ctx.Done():
	case <-time.After(forTime):
	case <-pipe.producerEnded:
	}
	if err := pipe.drain(); err != nil {
		return []finding{{Check: "watch", Status: statusFail, Found: err.Error(), Remedy: "try again"}}
	}
	s := pipe.snapshot()
	var rows []finding
	for _, h := range s.Hosts {
		for _, l := range h.Libraries {
			if len(l.Failed) > 0 {
				rows = append(rows, finding{
					Check: "probes", Status: statusWarn, Found: l.Path + ": Linux refused those of " + strings.Join(l.Failed, ", "),
					Remedy: "calls of these are not seen; gputap's log has the reason",
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
		Check: "watch", Status: statusWarn, Found: fmt.Sprintf("no CUDA call in %s", forTime), Remedy: "watch longer with --for, or wait until it works",
	})
}

func checkWatched(p *processJSON, forTime time.Duration, lost map[string]uint64) []finding {
	var calls uint64
	symbols := slices.SortedFunc(maps.Keys(p.Calls), func(a, b string) int { return int(p.Calls[b].OK) - int(p.Calls[a].OK) })
	for _, c := range p.Calls {
		calls += c.OK + c.Failed
	}
	watch := finding{Check: "watch", Status: statusOK, Found: fmt.Sprintf("%s in %s, most of %s",
		plural(calls, "call", "calls"), forTime, strings.Join(symbols[:min(3, len(symbols))], ", "))}
	if len(lost) > 0 {
		watch.Status, watch.Found = statusWarn, fmt.Sprintf("%s; events were lost: %v", watch.Found, lost)
		watch.Remedy = "give gputap more CPU or larger rings"
	}
	rows := []finding{watch}
	if p.Evidence == "late" {
		rows = append(rows, finding{
			Check: "before", Status: statusWarn, Found: "it ran before this check: its earlier allocations, names and contexts were not seen",
			Remedy: "have gputap running before the program starts",
		})
	}
	if p.Unseen.Asked > 0 || p.Unseen.ExportTables > 0 {
		f := finding{Check: "asked for", Status: statusOK, Found: fmt.Sprintf("%s by name, %s of unnamed ones",
			plural(uint64(p.Unseen.Asked), "function", "functions"), plural(uint64(p.Unseen.ExportTables), "table", "tables"))}
		if len(p.Unseen.Functions) > 0 {
			f.Status = statusWarn
			f.Found += "; without a probe: " + strings.Join(p.Unseen.Functions, ", ")
			f.Remedy = "none here: what they do is missing from every figure of this process"
		}
		rows = append(rows, f)
	}
	for uuid, g := range p.GPUs {
		if g.Inferred {
			rows = append(rows, finding{Check: "GPU", Status: statusWarn, Found: uuid + " is inferred from the device file it has open",
				Remedy: "have gputap running before the program starts"})
		}
		if i := g.Info; i != nil {
			rows = append(rows, finding{Check: "memory", Status: statusOK, Found: fmt.Sprintf(
				"cuMemGetInfo on %s said %s used; tracked %s of this process, %s of all; %s unexplained: contexts, code, earlier allocations",
				uuid, app.Bytes(i.UsedBytes), app.Bytes(i.ProcessBytes), app.Bytes(i.TrackedBytes), app.Bytes(uint64(max(i.Unexplained, 0))))})
		}
	}
	return rows
}
