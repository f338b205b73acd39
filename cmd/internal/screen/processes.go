package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/trend"
)

type activity = *answer.Activity

// processColumn is a column of the table of processes.
type processColumn struct {
	column
	cell func(a activity, now time.Time) string
}

const growthTitle = "GROWTH/H"

var processColumns = []processColumn{
	{column{title: "STATE", width: 12}, func(a activity, _ time.Time) string { return a.State() }},
	{column{title: "CLUSTER", width: 8, room: 8, rank: 10}, func(a activity, _ time.Time) string { return a.Cluster }},
	{column{title: "HOST", width: 12, room: 20}, func(a activity, _ time.Time) string { return a.Host }},
	{column{title: "PID", width: 7, right: true}, func(a activity, _ time.Time) string { return fmt.Sprint(a.PID) }},
	{column{title: "USER", width: 8}, func(a activity, _ time.Time) string { return a.UserText() }},
	{column{title: "COMMAND", width: 10, room: 6}, func(a activity, _ time.Time) string { return a.Comm }},
	{column{title: "LIVE", width: 11, right: true},
		func(a activity, _ time.Time) string { return amount(a.Memory(a.LiveBytes)) }},
	{column{title: "PEAK", width: 11, right: true, rank: 1},
		func(a activity, _ time.Time) string { return amount(a.Memory(a.PeakBytes)) }},
	{column{title: growthTitle, width: 11, right: true},
		func(a activity, _ time.Time) string { return amount(a.Growth()) }},
	{column{title: "LAUNCH/S", width: 9, right: true, rank: 2},
		func(a activity, _ time.Time) string { return figure("%.4g", a.LaunchRate, 1) }},
	{column{title: "WAIT %", width: 7, right: true, rank: 3},
		func(a activity, _ time.Time) string { return figure("%.1f", a.WaitShare, 100) }},
	{column{title: "COPIED", width: 11, right: true, rank: 4},
		func(a activity, _ time.Time) string { return amount(a.Copied) }},
	{column{title: "UNFREED", width: 11, right: true, rank: 5},
		func(a activity, _ time.Time) string { return amount(a.Memory(a.UnfreedBytes)) }},
	{column{title: "ALLOCS", width: 8, right: true, rank: 8},
		func(a activity, _ time.Time) string { return count(a.Memory(a.LiveAllocations)) }},
	{column{title: "GPUS", width: 4, right: true, rank: 6},
		func(a activity, _ time.Time) string { return count(a.Memory(uint64(a.BusyGPUs()))) }},
	{column{title: "AGE", width: 4, right: true, rank: 9},
		func(a activity, now time.Time) string { return app.Age(now.Sub(a.Start)) }},
	{column{title: "JOB", width: 12, room: 24, rank: 7}, func(a activity, _ time.Time) string { return a.JobText() }},
}

// amount formats a number of bytes.
func amount(bytes *uint64) string {
	if bytes == nil {
		return unknown
	}
	return app.Bytes(*bytes)
}

func count(n *uint64) string {
	if n == nil {
		return unknown
	}
	return fmt.Sprint(*n)
}

// figure formats a figure in a unit.
func figure(format string, v *float64, unit float64) string {
	if v == nil {
		return unknown
	}
	return fmt.Sprintf(format, *v*unit)
}

// order is an order of the processes.
type order struct {
	name    string
	title   string // of its column
	compare func(a, b activity) int
}

func most[T cmp.Ordered](of func(activity) T) func(a, b activity) int {
	return func(a, b activity) int { return cmp.Compare(of(b), of(a)) }
}

// orders begins with the default.
var orders = []order{
	{"live", "LIVE", func(a, b activity) int {
		return cmp.Or(report.UnknownLast(a.Process, b.Process), cmp.Compare(b.LiveBytes, a.LiveBytes),
			cmp.Compare(b.UnfreedBytes, a.UnfreedBytes))
	}},
	{"peak", "PEAK", most(func(a activity) float64 { return known(a.Memory(a.PeakBytes)) })},
	{"growth", growthTitle, most(func(a activity) float64 { return known(a.Growth()) })},
	{"launches", "LAUNCH/S", most(func(a activity) float64 { return known(a.LaunchRate) })},
	{"wait", "WAIT %", most(func(a activity) float64 { return known(a.WaitShare) })},
	{"copied", "COPIED", most(func(a activity) float64 { return known(a.Copied) })},
	{"unfreed", "UNFREED", most(func(a activity) float64 { return known(a.Memory(a.UnfreedBytes)) })},
	{"allocations", "ALLOCS", most(func(a activity) float64 { return known(a.Memory(a.LiveAllocations)) })},
	{"started", "AGE", most(func(a activity) int64 { return a.Start.UnixNano() })},
	{"host", "HOST", func(a, b activity) int { return 0 }},
}

// known sorts unknown figures below all others.
func known[T uint64 | float64](v *T) float64 {
	if v == nil {
		return -1
	}
	return float64(*v)
}

// Orders are the names of the orders of processes, the default first.
func Orders() (names []string) {
	for _, o := range orders {
		names = append(names, o.name)
	}
	return names
}

// Sort sorts processes by the order of a name, which is one of Orders.
func Sort(list []*answer.Activity, name string) {
	sortProcesses(list, max(0, slices.IndexFunc(orders, func(o order) bool { return o.name == name })))
}

// sortProcesses sorts by an order. Equal processes are in order of cluster, host, PID and start.
func sortProcesses(list []activity, by int) {
	slices.SortFunc(list, func(a, b activity) int {
		return cmp.Or(orders[by].compare(a, b), strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Host, b.Host),
			cmp.Compare(a.PID, b.PID), a.Start.Compare(b.Start))
	})
}

func processRow(a activity) row {
	r := row{
		key: subjectOf(a.Process).key(),
		search: strings.Join([]string{a.State(), a.Cluster, a.Host, fmt.Sprint(a.PID), a.UserText(), a.Comm,
			a.JobText()}, " "),
		cells: func(now time.Time) (cells []string) {
			for _, c := range processColumns {
				cells = append(cells, c.cell(a, now))
			}
			return cells
		},
	}
	r.style = styleOf(a.State())
	return r
}

func styleOf(state string) style {
	switch {
	case strings.HasPrefix(state, trend.Suspect.String()):
		return red
	case strings.HasPrefix(state, trend.Growing.String()):
		return yellow
	}
	return ""
}

// columnsOfProcesses returns the columns. That of the order takes the rank of the growth, so that every screen shows
// it. The column of the cluster is the first optional one if there are several clusters.
func columnsOfProcesses(by int, clusters bool) (list []column) {
	for _, c := range processColumns {
		list = append(list, c.column)
	}
	at := func(title string) *column {
		return &list[slices.IndexFunc(list, func(c column) bool { return c.title == title })]
	}
	if clusters {
		at("CLUSTER").rank = 1
	}
	if sorted, growth := at(orders[by].title), at(growthTitle); sorted.rank > growth.rank {
		sorted.rank, growth.rank = growth.rank, sorted.rank
	}
	return list
}
