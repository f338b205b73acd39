package main

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/schema"
)

// startFirst is the remedy for all that happened before gputap started.
const startFirst = "start gputap before the program"

// auditProcess checks which driver functions of a running process gputap sees and which it cannot see. It reads the
// process's libraries and memory, and then watches the process for a while.
func auditProcess(ctx context.Context, pid uint32, forTime time.Duration, libraries []string) []finding {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return []finding{fail("process", fmt.Sprintf("no process %d", pid),
			"use the pid of a running process on this host")}
	}
	rows := []finding{pass("process", fmt.Sprintf("%d %s", pid, strings.TrimSpace(string(comm))))}
	holdings, err := library.Audit(pid)
	if err != nil {
		return append(rows, fail("driver", err.Error(), "run as root or with CAP_SYS_PTRACE"))
	}
	if len(holdings) == 0 {
		rows = append(rows, warn("driver", "the process has not mapped libcuda.so",
			"try again after it has called cuInit; some programs never use CUDA"))
	}
	for i := range holdings {
		rows = append(rows, checkHolding(&holdings[i])...)
	}
	rows = append(rows, checkTorch(library.MappedBy(pid))...)
	return append(rows, watchProcess(ctx, pid, forTime, libraries)...)
}

// torchLibraries lists the files of PyTorch's library that running processes have mapped.
func torchLibraries() (all []library.Mapping) {
	var scanner library.Scanner
	_ = scanner.Scan(true, func(_ uint32, found []library.Mapping) { all = append(all, found...) })
	return all
}

// checkTorch checks each file of PyTorch's library among mappings. Without such a file it returns no row.
func checkTorch(mappings []library.Mapping) (rows []finding) {
	checked := map[library.Inode]bool{}
	for _, m := range mappings {
		if library.Of(m.Path) != schema.TorchLibrary || checked[m.Inode] {
			continue
		}
		checked[m.Inode] = true
		l, err := m.Inspect()
		switch {
		case errors.Is(err, library.ErrUnmapped):
		case err != nil:
			rows = append(rows, warn("torch", err.Error(), "run as root; check that the file is PyTorch's"))
		default:
			rows = append(rows, torchFinding(&l))
		}
	}
	return rows
}

func torchFinding(l *schema.Library) finding {
	switch {
	case l.Attached == 0:
		return warn("torch", l.Path+" does not export c10::reportMemoryUsageToProfiler as gputap knows it",
			"none; tensors of this PyTorch are not seen, the driver memory of its allocator is")
	case l.Stepped > 0:
		return warn("torch", l.Path+": each block of its allocator costs a single step",
			"leave out the feature torch if that is too slow")
	}
	return pass("torch", l.Path+": the feature torch sees the blocks of its allocator")
}

func checkHolding(h *library.Holding) []finding {
	driver := fmt.Sprintf("%s: %d functions to probe", h.Library.Path, h.Library.Attached)
	if absent := h.Library.Absent; len(absent) > 0 {
		driver += "; absent in this version: " + app.Shorten(strings.Join(absent, ", "), 300)
	}
	held := fmt.Sprintf("pointers to %d driver functions in its data, %d of them with a probe", h.Functions, h.Probed)
	return []finding{pass("driver", driver), unlessUnseen("holds", held, h.Outside)}
}

// unlessUnseen warns if the process can call functions that have no probe.
func unlessUnseen(check, found string, functions []string) finding {
	if len(functions) == 0 {
		return pass(check, found)
	}
	return warn(check, found+"; without a probe: "+strings.Join(functions, ", "),
		"none; calls of these functions are missing from all figures of this process")
}

// watchProcess watches one process for a while.
func watchProcess(ctx context.Context, pid uint32, forTime time.Duration, libraries []string) (rows []finding) {
	cfg := config.DefaultRunCommand()
	cfg.Metrics.Addr = ""
	cfg.Producer.Filter.PID = []string{strconv.FormatUint(uint64(pid), 10)}
	cfg.Producer.Libraries = libraries
	pipe, err := pipeline.New(ctx, cfg, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return []finding{fail("watch", err.Error(), "run gputap doctor without --pid")}
	}
	defer pipe.Close()
	pipe.Start()
	select {
	case <-ctx.Done():
	case <-time.After(forTime):
	case <-pipe.ProducerEnded():
	}
	if err := pipe.Drain(); err != nil {
		return []finding{fail("watch", err.Error(), "run gputap doctor again")}
	}
	s := pipe.Snapshot()
	for _, h := range s.Hosts {
		for _, l := range h.Libraries {
			if len(l.Failed) > 0 {
				rows = append(rows, warn("probes",
					l.Path+": Linux rejected the probes of "+strings.Join(l.Failed, ", "),
					"calls of these functions are not seen; the log of gputap run has the reason"))
			}
		}
	}
	i := slices.IndexFunc(s.Processes, func(p *report.Process) bool { return p.PID == pid })
	if i < 0 {
		return append(rows, warn("watch", fmt.Sprintf("no CUDA call in %s", forTime),
			"watch longer with --for, or wait until the process uses the GPU"))
	}
	return append(rows, checkWatched(s.Processes[i], forTime, s.Lost)...)
}

func checkWatched(p *report.Process, forTime time.Duration, lost map[string]uint64) []finding {
	rows := []finding{checkCalls(p, forTime, lost)}
	if p.Evidence == "late" {
		rows = append(rows, warn("before",
			"the process began before this check, so its earlier allocations, names and contexts were not seen",
			startFirst))
	}
	if p.Unseen.Asked > 0 || p.Unseen.ExportTables > 0 {
		asked := fmt.Sprintf("%s by name, %s of unnamed functions",
			app.Plural(uint64(p.Unseen.Asked), "function", "functions"),
			app.Plural(uint64(p.Unseen.ExportTables), "table", "tables"))
		rows = append(rows, unlessUnseen("asked for", asked, p.Unseen.Functions))
	}
	for uuid, g := range p.GPUs {
		if g.Inferred {
			rows = append(rows, warn("GPU",
				uuid+" is inferred from the device file that the process has open", startFirst))
		}
		if i := g.Info; i != nil {
			rows = append(rows, pass("memory", fmt.Sprintf("cuMemGetInfo of %s: %s used; gputap tracks %s of this "+
				"process and %s of all; %s are contexts, code or earlier allocations", uuid, app.Bytes(i.UsedBytes),
				app.Bytes(i.ProcessBytes), app.Bytes(i.TrackedBytes), app.Bytes(uint64(max(i.Unexplained, 0))))))
		}
	}
	return rows
}

func checkCalls(p *report.Process, forTime time.Duration, lost map[string]uint64) finding {
	var calls uint64
	for _, c := range p.Calls {
		calls += c.OK + c.Failed
	}
	symbols := slices.SortedFunc(maps.Keys(p.Calls), func(a, b string) int {
		return cmp.Compare(p.Calls[b].OK, p.Calls[a].OK)
	})
	found := fmt.Sprintf("%s in %s, most often %s", app.Plural(calls, "call", "calls"), forTime,
		strings.Join(symbols[:min(3, len(symbols))], ", "))
	if len(lost) > 0 {
		return warn("watch", found+"; events were lost: "+report.LostText(lost),
			"give gputap more CPU time or larger rings")
	}
	return pass("watch", found)
}
