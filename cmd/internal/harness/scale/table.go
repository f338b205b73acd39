package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const micro = 1e6

func cpuNames(list ...[]int) string {
	var names []string
	for _, cpus := range list {
		switch {
		case len(cpus) == 0:
			return "all"
		case len(cpus) == 1:
			names = append(names, fmt.Sprint(cpus[0]))
		default:
			names = append(names, fmt.Sprintf("%d–%d", cpus[0], cpus[len(cpus)-1]))
		}
	}
	return strings.Join(names, ", ")
}

func leaders(m map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprint(m[name]))
	}
	return strings.Join(list, "/")
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// nodesBusy returns the fraction of its CPUs that each node used.
func (r *result) nodesBusy(u *use) string {
	var list []string
	for i, cpu := range u.NodeCPU {
		list = append(list, fmt.Sprintf("%.0f", 100*busy(cpu, u.Seconds, r.CPUs[i])))
	}
	return strings.Join(list, "/") + " %"
}

func (r *result) printFill() {
	f := &r.Fill
	if f.Stats.AckedBatches == 0 {
		return // the run ended early
	}
	events, batches, bytes := float64(f.Stats.AckedEvents), float64(f.Stats.AckedBatches), float64(f.Stats.AckedBytes)
	seconds := f.Stats.Seconds
	fmt.Printf("| fill, %d hosts | |\n| --- | ---: |\n", r.Hosts)
	row := func(what, format string, v ...any) { fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, v...)) }
	row("stored", "%.0f M events, %.2f GB, in %.1f s", events/1e6, bytes/1e9, seconds)
	row("events/s", "%.2f M", events/seconds/1e6)
	row("batches/s, events and bytes of one", "%.0f, %.0f, %.0f", batches/seconds, events/batches, bytes/batches)
	row("bytes of an event", "%.2f", bytes/events)
	row("MB/s from the hosts; into the nodes; out of them", "%.0f; %.0f; %.0f",
		bytes/seconds/1e6, float64(f.NodeIn)/seconds/1e6, float64(f.NodeOut)/seconds/1e6)
	row("CPU s per million events: nodes together, simulator", "%.3f, %.3f",
		f.nodesCPU()/events*1e6, f.processesCPU()/events*1e6)
	row("CPU µs per batch: nodes together, simulator", "%.0f, %.0f",
		f.nodesCPU()/batches*micro, f.processesCPU()/batches*micro)
	row("CPU usage of each node; of the simulator; machine idle", "%s; %s; %s",
		r.nodesBusy(&f.use), percent(busy(f.processesCPU(), f.Seconds, r.Simulator)), percent(f.Idle))
	row("bytes on disk per byte stored, one replica: streams, the rest (Raft)", "%.2f, %.2f",
		float64(f.DiskStreams)/nodes/bytes, float64(f.DiskRest)/nodes/bytes)
	row("bytes written to disk per byte stored, one replica", "%.2f", float64(f.NodeWritten)/nodes/bytes)
	row("limited by (at 100 % of its CPUs)", "%s", f.Limit)
	fmt.Println()
}

func (r *result) printFolded(f *folded) {
	if len(f.Backlog) == 0 {
		return // the run ended early, or left it out
	}
	r.printBacklog(f)
	r.printBaseline(f)
}

func (r *result) printBacklog(f *folded) {
	fmt.Println("| fold | instances, a CPU each | M events/s | × | messages/s | MB/s " +
		"| CPU s per M events: instances | nodes | CPU of an instance, min to max | of each node " +
		"| peak MiB of one | limited by |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
	base := map[string]float64{}
	for i := range f.Backlog {
		l := &f.Backlog[i]
		if l.Short {
			fmt.Printf("| %s | %d | too short to measure (%.1f s): use more events |\n", l.Fold, l.Instances, l.Seconds)
			continue
		}
		if l.LeasesLost > 0 {
			fmt.Printf("| %s | %d | disturbed, %.0f leases lost: give the nodes more CPUs |\n", l.Fold, l.Instances,
				l.LeasesLost)
			continue
		}
		if base[l.Fold] == 0 {
			base[l.Fold] = l.EventsPerSecond / float64(l.Instances)
		}
		fmt.Printf("| %s | %d | %.2f | %.2f | %.0f | %.0f | %.3f | %.3f | %s to %s | %s | %d | %s |\n",
			l.Fold, l.Instances, l.EventsPerSecond/1e6, l.EventsPerSecond/base[l.Fold], l.MessagesPerSecond,
			l.MessagesPerSecond*l.MessageBytes/1e6,
			l.processesCPU()/l.WindowEvents*1e6, l.nodesCPU()/l.WindowEvents*1e6,
			percent(slices.Min(l.CPU)/l.Seconds), percent(slices.Max(l.CPU)/l.Seconds), r.nodesBusy(&l.use),
			slices.Max(l.Resident)>>20, l.Limit)
	}
	fmt.Println()
}

func (r *result) printBaseline(f *folded) {
	fmt.Println("| messages of | instances, and no-op consumers, a CPU each | instances, messages/s " +
		"| no-op consumers, before and after | ratio | CPU of a no-op consumer, min to max " +
		"| of each node | limited by |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
	for i := range min(len(f.Backlog), len(f.Baseline)/2) {
		l, before, after := &f.Backlog[i], &f.Baseline[2*i], &f.Baseline[2*i+1]
		if l.Short || l.LeasesLost > 0 || before.Short && !before.Whole || after.Short && !after.Whole {
			fmt.Printf("| %s | %d | too short or disturbed |\n", l.Fold, l.Instances)
			continue
		}
		cpu := percent(slices.Min(after.CPU)/after.Seconds) + " to " + percent(slices.Max(after.CPU)/after.Seconds)
		each, limit := r.nodesBusy(&after.use), after.Limit
		if after.Short {
			cpu, each, limit = "too short to measure", "", ""
		}
		fmt.Printf("| %s | %d | %.0f | %.0f, %.0f | %.2f | %s | %s | %s |\n",
			l.Fold, l.Instances, l.MessagesPerSecond, before.MessagesPerSecond, after.MessagesPerSecond,
			2*l.MessagesPerSecond/(before.MessagesPerSecond+after.MessagesPerSecond), cpu, each, limit)
	}
	fmt.Println()
}

func (r *result) printLive(l *liveResult) {
	if l.Stats.AckedBatches == 0 {
		return // the run ended early
	}
	events, batches, bytes := float64(l.Stats.AckedEvents), float64(l.Stats.AckedBatches), float64(l.Stats.AckedBytes)
	fmt.Printf("| live, %.0f events/s of %d hosts in batches of 50 ms | without consumers | one instance of each |\n"+
		"| --- | ---: | ---: |\n", l.Stats.AskedRate, r.Hosts)
	row := func(what string, cell func(*liveSpan) string) {
		fmt.Printf("| %s | %s | %s |\n", what, cell(&l.Alone), cell(&l.Folded))
	}
	perMessage := func(v float64, s *liveSpan) float64 { return v / (s.MessagesPerSecond * s.Seconds) }
	row("messages/s", func(s *liveSpan) string { return fmt.Sprintf("%.0f", s.MessagesPerSecond) })
	row("CPU µs per message stored: nodes together, simulator", func(s *liveSpan) string {
		return fmt.Sprintf("%.1f, %.1f", perMessage(s.nodesCPU(), s)*micro, perMessage(s.CPU[0], s)*micro)
	})
	row("bytes per message: into the nodes, out of them", func(s *liveSpan) string {
		return fmt.Sprintf("%.0f, %.0f", perMessage(float64(s.NodeIn), s), perMessage(float64(s.NodeOut), s))
	})
	row("bytes written to disk per message, all nodes", func(s *liveSpan) string {
		return fmt.Sprintf("%.0f", perMessage(float64(s.NodeWritten), s))
	})
	row("CPU usage of each node", func(s *liveSpan) string { return r.nodesBusy(&s.use) })
	row("machine idle", func(s *liveSpan) string { return percent(s.Idle) })
	row("limited by (at 100 % of its CPUs)", func(s *liveSpan) string { return s.Limit })
	fmt.Printf("\nA batch has %.1f events and %.0f bytes; an event has %.1f bytes; "+
		"the hosts kept up: %v; the folds caught up: %v; "+
		"bytes on disk per byte stored, one replica: %.2f, and the rest %.2f.\n\n", events/batches, bytes/batches,
		bytes/events,
		l.Stats.KeptUp, l.CaughtUp, float64(l.DiskStreams)/nodes/bytes, float64(l.DiskRest)/nodes/bytes)
	fmt.Println("| fold, live | messages/s | events/s | CPU of its instance | CPU µs per message " +
		"| CPU s per M events | max lag, messages | MiB |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	delivered := 0.0
	for i := range l.Folds {
		f := &l.Folds[i]
		delivered += f.MessagesPerSecond
		fmt.Printf("| %s | %.0f | %.0f | %s | %.1f | %.2f | %.0f | %d |\n",
			f.Fold, f.MessagesPerSecond, f.EventsPerSecond, percent(f.CPU/l.Folded.Seconds),
			f.CPU/l.Folded.Seconds/f.MessagesPerSecond*micro, f.CPU/l.Folded.Seconds/f.EventsPerSecond*1e6,
			f.MostLag, f.Resident>>20)
	}
	more := l.Folded.nodesCPU()/l.Folded.Seconds - l.Alone.nodesCPU()/l.Alone.Seconds
	fmt.Printf("\nThe nodes spend %.1f µs more CPU time for each message that they deliver.\n\n", more/delivered*micro)
}
