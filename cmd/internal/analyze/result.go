package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/analysis"
)

// Who names a process.
type Who struct {
	PID     uint32   `json:"pid"`
	Host    string   `json:"host"`
	Cluster string   `json:"cluster"`
	Start   app.Time `json:"start"`
	Comm    string   `json:"comm"`
	UID     uint32   `json:"uid"`
	User    string   `json:"user"`
	Job     string   `json:"job"`
	Rank    *uint32  `json:"rank"` // null: unknown
}

func whoOf(p *analysis.Process) Who {
	w := Who{p.ID.PID, p.ID.Host, p.ID.Cluster, app.Time{Time: p.Start}, p.Comm, p.UID, p.User, p.Job, nil}
	if p.Rank > 0 {
		w.Rank = new(p.Rank - 1)
	}
	return w
}

// Allocation is memory that was live.
type Allocation struct {
	Address string   `json:"address"`
	Bytes   uint64   `json:"bytes"`
	Class   string   `json:"class"`
	Time    app.Time `json:"time"`
	TID     uint32   `json:"tid"`
	Thread  string   `json:"thread"`
	Symbol  string   `json:"symbol"` // of the call that allocated it
	Stack   []string `json:"stack"`  // innermost first; empty if the source has none
	Name    string   `json:"name"`   // of the variable; "": unknown
}

// Group is allocations of one class, thread, call and call stack.
type Group struct {
	Class       string   `json:"class"`
	TID         uint32   `json:"tid"`
	Thread      string   `json:"thread"`
	Symbol      string   `json:"symbol"`
	Stack       []string `json:"stack"`
	Name        string   `json:"name"`
	Bytes       uint64   `json:"bytes"`
	Allocations uint64   `json:"allocations"`
}

// Live is what a process had live on one GPU at some moment.
type Live struct {
	Classes map[string]uint64 `json:"classes"` // bytes
	Groups  []Group           `json:"groups"`  // the largest first
	List    []Allocation      `json:"live"`    // the largest first
}

func liveOf(list []analysis.Allocation) Live {
	l := Live{Classes: map[string]uint64{}, Groups: []Group{}, List: make([]Allocation, 0, len(list))}
	at := map[*analysis.Group]int{}
	for i := range list {
		a := &list[i]
		l.Classes[a.Class.String()] += a.Bytes
		if _, known := at[a.Group]; !known {
			at[a.Group] = len(l.Groups)
			l.Groups = append(l.Groups, Group{Class: a.Class.String(), TID: a.TID, Thread: a.Thread, Symbol: a.Symbol,
				Stack: append([]string{}, a.Stack...), Name: a.Name})
		}
		g := &l.Groups[at[a.Group]]
		g.Bytes += a.Bytes
		g.Allocations++
		l.List = append(l.List, Allocation{fmt.Sprintf("%#x", a.Ptr), a.Bytes, a.Class.String(),
			app.Time{Time: a.Time}, a.TID, a.Thread, a.Symbol, append([]string{}, a.Stack...), a.Name})
	}
	slices.SortStableFunc(l.Groups, func(a, b Group) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return l
}

// Peak is the most memory of a process on one GPU.
type Peak struct {
	Bytes uint64   `json:"peak_bytes"`
	Time  app.Time `json:"peak_time"`
	Live
}

// Leak is the memory of a process on one GPU at the end.
type Leak struct {
	Bytes uint64 `json:"live_bytes"`
	Live
}

// Process is a process with a figure for each GPU, by UUID, or by the ordinal of the device where the UUID is unknown.
type Process[T any] struct {
	Who
	GPUs map[string]T `json:"gpus"`

	order []string // of GPUs
	bytes uint64   // of all
}

// Result is the answer to one question.
type Result[T any] struct {
	Processes []Process[T] `json:"processes"` // the one with the most memory first
	Findings  Findings     `json:"findings"`
	Complete  bool         `json:"complete"`
	Missing   []string     `json:"missing"` // what is not known; empty if it is complete
	Notes     []string     `json:"notes"`   // what the source lacks, without effect on the figures
}

// result makes a result of processes.
func result[T any](m *memory, processes []Process[T]) *Result[T] {
	slices.SortStableFunc(processes, func(a, b Process[T]) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), a.compare(&b.Who))
	})
	return &Result[T]{append([]Process[T]{}, processes...), m.Findings, len(m.Missing) == 0,
		append([]string{}, m.Missing...), append([]string{}, m.Notes...)}
}

func (p *Process[T]) add(gpu *analysis.GPU, figure T, bytes uint64) {
	id := nameOf(gpu)
	for _, taken := p.GPUs[id]; taken; _, taken = p.GPUs[id] {
		id += "'" // two GPUs of unknown UUID
	}
	p.GPUs[id] = figure
	p.order = append(p.order, id)
	p.bytes += bytes
}

// place returns the host, behind its cluster if the answer has several.
func (w *Who) place(clusters bool) string {
	if clusters {
		return w.Cluster + "/" + w.Host
	}
	return w.Host
}

// severalClusters reports whether the processes are of several clusters, whose hosts may have equal names.
func severalClusters[T any](list []T, of func(*T) *Who) bool {
	return slices.ContainsFunc(list, func(one T) bool { return of(&one).Cluster != of(&list[0]).Cluster })
}

// gpuNames returns the names of the GPUs of a process, which differ.
func gpuNames(p *analysis.Process) (names []string) {
	for i := range p.GPUs {
		name := nameOf(&p.GPUs[i])
		for slices.Contains(names, name) {
			name += "'" // two GPUs of unknown UUID
		}
		names = append(names, name)
	}
	return names
}

// compare orders processes by host, cluster, PID and start.
func (w *Who) compare(to *Who) int {
	return cmp.Or(cmp.Compare(w.Host, to.Host), cmp.Compare(w.Cluster, to.Cluster), cmp.Compare(w.PID, to.PID),
		w.Start.Compare(to.Start.Time))
}

const unknownGPU = "unknown"

func nameOf(gpu *analysis.GPU) string {
	if gpu.UUID == "" && gpu.Ordinal < 0 {
		return unknownGPU
	}
	return cmp.Or(gpu.UUID, strconv.Itoa(int(gpu.Ordinal)))
}

func (m *memory) watermark(r *Range) (*Result[Peak], error) {
	var list []Process[Peak]
	for _, p := range m.selected(r) {
		peaks, err := p.Watermark()
		if err != nil {
			return nil, err
		}
		one := Process[Peak]{Who: whoOf(p), GPUs: map[string]Peak{}}
		for i := range peaks {
			at := &peaks[i]
			one.add(&at.GPU, Peak{at.Bytes, app.Time{Time: at.Time}, liveOf(at.Live)}, at.Bytes)
		}
		list = append(list, one)
	}
	return result(m, list), nil
}

func (m *memory) leakage(r *Range) (*Result[Leak], error) {
	var list []Process[Leak]
	for _, p := range m.selected(r) {
		leaks, err := p.Leakage()
		if err != nil {
			return nil, err
		}
		one := Process[Leak]{Who: whoOf(p), GPUs: map[string]Leak{}}
		for i := range leaks {
			one.add(&leaks[i].GPU, Leak{leaks[i].Bytes, liveOf(leaks[i].Live)}, leaks[i].Bytes)
		}
		list = append(list, one)
	}
	return result(m, list), nil
}
