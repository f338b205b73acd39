package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/anomaly"
)

// most orders by a measure, the largest first.
func most[T any](measure func(*T) uint64) func(a, b *T) int {
	return func(a, b *T) int { return cmp.Compare(measure(b), measure(a)) }
}

// mostKnown orders by a measure that may be unknown, the largest first and unknown ones last.
func mostKnown[T any, N uint64 | float64](measure func(*T) *N) func(a, b *T) int {
	return func(a, b *T) int {
		x, y := measure(a), measure(b)
		switch {
		case x != nil && y != nil:
			return cmp.Compare(*y, *x)
		case x != nil:
			return -1
		case y != nil:
			return 1
		}
		return 0
	}
}

// least orders by a measure, the smallest first.
func least[T any, M cmp.Ordered](measure func(*T) M) func(a, b *T) int {
	return func(a, b *T) int { return cmp.Compare(measure(a), measure(b)) }
}

type process = *report.Process

var processes = resource[process]{
	name: "processes", short: "Processes by GPU memory: who holds it", detail: true,
	ask: (*answer.Fleet).Processes,
	examples: "  gputap get processes --host 'gpu-1*' --user ann -o wide\n" +
		"  gputap get processes --sort growth --limit 10 --watch\n" +
		"  gputap get processes --nats.url nats://bus:4222 -o json",
	columns: []column[process]{
		{clusterTitle, true, func(p *process, _ time.Time) any { return (*p).Cluster }},
		{"HOST", false, func(p *process, _ time.Time) any { return (*p).Host }},
		{"PID", false, func(p *process, _ time.Time) any { return (*p).PID }},
		{"USER", false, func(p *process, _ time.Time) any { return (*p).UserText() }},
		{"COMMAND", false, func(p *process, _ time.Time) any { return (*p).Comm }},
		{"STATE", false, func(p *process, _ time.Time) any { return (*p).State() }},
		{"LIVE", false, func(p *process, _ time.Time) any { return app.Amount((*p).LiveBytes) }},
		{"PEAK", false, func(p *process, _ time.Time) any { return app.Amount((*p).PeakBytes) }},
		{"UNFREED", false, func(p *process, _ time.Time) any { return app.Amount((*p).UnfreedBytes) }},
		{"GROWTH/H", true, func(p *process, _ time.Time) any { return amount((*p).Growth()) }},
		{"ALLOCATIONS", true, func(p *process, _ time.Time) any { return (*p).LiveAllocations }},
		{"GPUS", true, func(p *process, _ time.Time) any { return (*p).BusyGPUs() }},
		{"EVIDENCE", true, func(p *process, _ time.Time) any { return (*p).Evidence }},
		{"STARTED", true, func(p *process, now time.Time) any { return age(&(*p).Start, now) }},
		{"JOB", true, func(p *process, _ time.Time) any { return (*p).JobText() }},
		{"CONTAINER", true, func(p *process, _ time.Time) any { return fmt.Sprintf("%.12s", (*p).Container) }},
		{"UNIT", true, func(p *process, _ time.Time) any { return (*p).Unit }},
	},
	orders: []order[process]{
		{"live", func(a, b *process) int {
			return cmp.Or(report.UnknownLast(*a, *b), cmp.Compare((*b).LiveBytes, (*a).LiveBytes),
				cmp.Compare((*b).UnfreedBytes, (*a).UnfreedBytes))
		}},
		{"peak", mostKnown(func(p *process) *uint64 { return (*p).Memory((*p).PeakBytes) })},
		{"unfreed", mostKnown(func(p *process) *uint64 { return (*p).Memory((*p).UnfreedBytes) })},
		{"growth", mostKnown(func(p *process) *uint64 { return (*p).Growth() })},
		{"allocations", mostKnown(func(p *process) *uint64 { return (*p).Memory((*p).LiveAllocations) })},
		{"host", least(func(p *process) string { return (*p).Host })},
		{"started", most(func(p *process) uint64 { return uint64((*p).Start.UnixNano()) })},
	},
	tie: func(a, b *process) int {
		return cmp.Or(named((*a).Cluster, (*a).Host, (*b).Cluster, (*b).Host), cmp.Compare((*a).PID, (*b).PID),
			(*a).Start.Compare((*b).Start))
	},
}

var hosts = resource[answer.FleetHost]{
	name: "hosts", short: "Hosts, and when they were last heard of", ask: (*answer.Fleet).Hosts,
	examples: "  gputap get hosts --sort heard              # the host that was silent for longest comes first\n" +
		"  gputap get hosts --sort lost -o wide",
	columns: []column[answer.FleetHost]{
		{clusterTitle, true, func(h *answer.FleetHost, _ time.Time) any { return h.Cluster }},
		{"HOST", false, func(h *answer.FleetHost, _ time.Time) any { return h.Host.Host }},
		{"HEARD", false, func(h *answer.FleetHost, now time.Time) any { return age(h.Heard, now) }},
		{"GPUS", false, func(h *answer.FleetHost, _ time.Time) any { return len(h.GPUs) }},
		{"PROCESSES", false, func(h *answer.FleetHost, _ time.Time) any { return h.Processes }},
		{"LIVE", false, func(h *answer.FleetHost, _ time.Time) any { return app.Amount(h.LiveBytes) }},
		{"LOST", false, func(h *answer.FleetHost, _ time.Time) any { return lostCell(h) }},
		{"PRODUCER", false, func(h *answer.FleetHost, _ time.Time) any { return h.Producer }},
		{"LINUX", true, func(h *answer.FleetHost, _ time.Time) any { return h.Linux }},
		{"LATE", true, func(h *answer.FleetHost, _ time.Time) any { return h.LateProcesses }},
		{"LAST EVENT", true, func(h *answer.FleetHost, now time.Time) any { return age(h.LastEvent, now) }},
		{"LIBRARIES", true, func(h *answer.FleetHost, _ time.Time) any { return len(h.Libraries) }},
	},
	orders: []order[answer.FleetHost]{
		{"host", func(a, b *answer.FleetHost) int { return 0 }},
		{"heard", func(a, b *answer.FleetHost) int { return moment(a.Heard).Compare(moment(b.Heard)) }},
		{"live", most(func(h *answer.FleetHost) uint64 { return h.LiveBytes })},
		{"lost", most(lost)},
	},
	tie: func(a, b *answer.FleetHost) int { return named(a.Cluster, a.Host.Host, b.Cluster, b.Host.Host) },
}

// lost sums events and batches that were lost: it only says whether something was.
func lost(h *answer.FleetHost) (n uint64) {
	for _, lost := range h.Lost {
		n += lost
	}
	return n
}

// lostCell shows events, and batches whose events are unknown.
func lostCell(h *answer.FleetHost) any {
	batches := h.Lost["missing_batches"]
	if batches == 0 {
		return lost(h)
	}
	return fmt.Sprintf("%d + %s", lost(h)-batches, app.Plural(batches, "batch", "batches"))
}

var gpus = resource[answer.FleetGPU]{
	name: "gpus", short: "GPUs by the live memory of their processes", ask: (*answer.Fleet).GPUs,
	examples: "  gputap get gpus --host 'gpu-1*'\n  gputap get gpus --limit 0 -o json",
	columns: []column[answer.FleetGPU]{
		{clusterTitle, true, func(g *answer.FleetGPU, _ time.Time) any { return g.Cluster }},
		{"HOST", false, func(g *answer.FleetGPU, _ time.Time) any { return g.Host }},
		{"GPU", false, func(g *answer.FleetGPU, _ time.Time) any { return fmt.Sprintf("%.12s", g.UUID) }},
		{"MODEL", false, func(g *answer.FleetGPU, _ time.Time) any { return cmp.Or(g.Name, "-") }},
		{"PROCESSES", false, func(g *answer.FleetGPU, _ time.Time) any { return g.Processes }},
		{"LIVE", false, func(g *answer.FleetGPU, _ time.Time) any { return app.Amount(g.LiveBytes) }},
		{"USED", false, func(g *answer.FleetGPU, _ time.Time) any { return used(g) }},
		{"TOTAL", false, func(g *answer.FleetGPU, _ time.Time) any { return amount(g.Total) }},
		{"ASKED", true, func(g *answer.FleetGPU, now time.Time) any {
			if g.Info == nil {
				return "-"
			}
			return age(&g.Info.Time, now)
		}},
		{"BUS", true, func(g *answer.FleetGPU, _ time.Time) any { return g.Bus }},
		{"UUID", true, func(g *answer.FleetGPU, _ time.Time) any { return g.UUID }},
	},
	orders: []order[answer.FleetGPU]{
		{"live", most(func(g *answer.FleetGPU) uint64 { return g.LiveBytes })},
		{"host", least(func(g *answer.FleetGPU) string { return g.Host })},
	},
	tie: func(a, b *answer.FleetGPU) int {
		return cmp.Or(named(a.Cluster, a.Host, b.Cluster, b.Host), cmp.Compare(a.UUID, b.UUID))
	},
}

// used is what the driver told a process of the GPU last; "-" if no process asked.
func used(g *answer.FleetGPU) any {
	if g.Info == nil {
		return "-"
	}
	return app.Amount(g.Info.UsedBytes)
}

var kernels = resource[answer.FleetKernel]{
	name: "kernels", short: "CUDA kernels by launches", ask: (*answer.Fleet).Kernels,
	examples: "  gputap get kernels --comm python3 --limit 10\n" +
		"  gputap get kernels --job slurm:1000.0 --sort host -o wide",
	columns: []column[answer.FleetKernel]{
		{clusterTitle, true, func(k *answer.FleetKernel, _ time.Time) any { return k.Cluster }},
		{"HOST", false, func(k *answer.FleetKernel, _ time.Time) any { return k.Host }},
		{"PID", false, func(k *answer.FleetKernel, _ time.Time) any { return k.PID }},
		{"COMMAND", false, func(k *answer.FleetKernel, _ time.Time) any { return k.Comm }},
		{"LAUNCHES", false, func(k *answer.FleetKernel, _ time.Time) any { return k.Launches }},
		{"FROM GRAPHS", true, func(k *answer.FleetKernel, _ time.Time) any { return k.FromGraphs }},
		{"NAME SOURCE", true, func(k *answer.FleetKernel, _ time.Time) any { return k.NameSource }},
		{"KERNEL", false, func(k *answer.FleetKernel, _ time.Time) any { return app.Shorten(k.Name, 60) }},
	},
	orders: []order[answer.FleetKernel]{
		{"launches", most(func(k *answer.FleetKernel) uint64 { return k.Launches })},
		{"host", least(func(k *answer.FleetKernel) string { return k.Host })},
		{"kernel", least(func(k *answer.FleetKernel) string { return k.Name })},
	},
	tie: func(a, b *answer.FleetKernel) int {
		return cmp.Or(ofWho(&a.Who, &b.Who), strings.Compare(a.Name, b.Name))
	},
}

var copies = resource[answer.FleetCopy]{
	name: "copies", short: "Copies and sets by process and direction", ask: (*answer.Fleet).Copies,
	examples: "  gputap get copies --host gpu-1 --sort calls\n  gputap get copies --user ann -o wide",
	columns: []column[answer.FleetCopy]{
		{clusterTitle, true, func(c *answer.FleetCopy, _ time.Time) any { return c.Cluster }},
		{"HOST", false, func(c *answer.FleetCopy, _ time.Time) any { return c.Host }},
		{"PID", false, func(c *answer.FleetCopy, _ time.Time) any { return c.PID }},
		{"COMMAND", false, func(c *answer.FleetCopy, _ time.Time) any { return c.Comm }},
		{"DIRECTION", false, func(c *answer.FleetCopy, _ time.Time) any { return c.Direction }},
		{"CALLS", false, func(c *answer.FleetCopy, _ time.Time) any { return c.Calls }},
		{"BYTES", false, func(c *answer.FleetCopy, _ time.Time) any { return app.Amount(c.Bytes) }},
		{"SYNC RATE", false, func(c *answer.FleetCopy, _ time.Time) any { return rate(c) }},
		{"ASYNC CALLS", true, func(c *answer.FleetCopy, _ time.Time) any { return c.AsyncCalls }},
		{"ASYNC BYTES", true, func(c *answer.FleetCopy, _ time.Time) any { return app.Amount(c.AsyncBytes) }},
	},
	orders: []order[answer.FleetCopy]{
		{"bytes", most(func(c *answer.FleetCopy) uint64 { return c.Bytes })},
		{"calls", most(func(c *answer.FleetCopy) uint64 { return c.Calls })},
		{"host", least(func(c *answer.FleetCopy) string { return c.Host })},
	},
	tie: func(a, b *answer.FleetCopy) int {
		return cmp.Or(ofWho(&a.Who, &b.Who), strings.Compare(a.Direction, b.Direction))
	},
}

// rate is the throughput of synchronous copies. The duration of an asynchronous copy is unknown.
func rate(c *answer.FleetCopy) string {
	if c.BusySeconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f GB/s", float64(c.Bytes-c.AsyncBytes)/c.BusySeconds/1e9)
}

var alerts = resource[anomaly.Alert]{
	name: "alerts", short: "The newest alerts", ask: (*answer.Fleet).Alerts, history: (*answer.Fleet).AlertHistory,
	examples: "  gputap get alerts --since 1h               # also those that have cleared\n" +
		"  gputap get alerts --host 'gpu-1*' --sort rule -o json",
	columns: []column[anomaly.Alert]{
		{clusterTitle, true, func(a *anomaly.Alert, _ time.Time) any { return a.Cluster }},
		{"AGE", false, func(a *anomaly.Alert, now time.Time) any { return age(&a.Time, now) }},
		{"STATE", false, func(a *anomaly.Alert, _ time.Time) any { return a.State }},
		{"SEVERITY", false, func(a *anomaly.Alert, _ time.Time) any { return a.Severity }},
		{"RULE", false, func(a *anomaly.Alert, _ time.Time) any { return a.Rule }},
		{"HOST", false, func(a *anomaly.Alert, _ time.Time) any { return cmp.Or(a.Host, "-") }},
		{"PID", false, func(a *anomaly.Alert, _ time.Time) any { return orDash(a.PID) }},
		{"COMMAND", false, func(a *anomaly.Alert, _ time.Time) any { return a.Comm }},
		{"TIME", true, func(a *anomaly.Alert, _ time.Time) any { return a.Time.UTC().Format(time.RFC3339) }},
		{"ID", true, func(a *anomaly.Alert, _ time.Time) any { return a.ID }},
		{"MESSAGE", false, func(a *anomaly.Alert, _ time.Time) any { return a.Message }},
	},
	orders: []order[anomaly.Alert]{
		{"time", func(a, b *anomaly.Alert) int { return b.Time.Compare(a.Time) }},
		{"host", least(func(a *anomaly.Alert) string { return a.Host })},
		{"rule", least(func(a *anomaly.Alert) string { return a.Rule })},
	},
	tie: func(a, b *anomaly.Alert) int {
		return cmp.Or(named(a.Cluster, a.Host, b.Cluster, b.Host), b.Time.Compare(a.Time), cmp.Compare(a.PID, b.PID))
	},
}
