package bandwidth

import (
	"cmp"
	"slices"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is the copies, sets and waits of one process.
type Process struct {
	process.Info
	Calls    []process.Call // includes failed calls
	Copies   []DirectionUse // the rows in use: directions in the order of schema.Direction, then sets
	Groups   []Group        // the same copies in more detail, without sets, most bytes first
	Recorded uint64         // copies and sets recorded into a graph; they did not run
	Waits    Waits
}

// DirectionUse is the copies of one direction, or the sets. Calls and Bytes include the asynchronous ones, which
// AsyncCalls and AsyncBytes count. BusyNS is host time in the synchronous ones.
type DirectionUse struct {
	Direction  schema.Direction // schema.DirNone for sets
	Set        bool
	Calls      uint64
	Bytes      uint64
	BusyNS     uint64
	AsyncCalls uint64
	AsyncBytes uint64
}

// Word returns the name of the row: the direction, or "set".
func (d *DirectionUse) Word() string {
	if d.Set {
		return "set"
	}
	return d.Direction.String()
}

// Throughput returns the bytes per second of the synchronous copies; 0 without any.
func (d *DirectionUse) Throughput() float64 {
	if d.BusyNS == 0 {
		return 0
	}
	return float64(d.Bytes-d.AsyncBytes) / (float64(d.BusyNS) / 1e9)
}

// Report returns the processes in order of first sight.
func (m *Meter) Report() []Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.processes.All()
	report := make([]Process, 0, len(all))
	for _, e := range all {
		report = append(report, Process{
			Info:  e.Info,
			Calls: e.Calls.Clone(), Copies: e.State.report(), Groups: e.State.groups(), Recorded: e.State.recorded,
			Waits: e.State.waits,
		})
	}
	return report
}

// report sums the rows by direction.
func (s *state) report() []DirectionUse {
	var done, submitted [numRows]sum
	for k, r := range s.rows {
		done[k.row].Add(&r.sync)
		submitted[k.row].Add(&r.async)
	}
	var list []DirectionUse
	for d := range numRows {
		done, submitted := &done[d], &submitted[d]
		if done.calls+submitted.calls == 0 {
			continue
		}
		direction := d
		if d == rowSet {
			direction = schema.DirNone
		}
		list = append(list, DirectionUse{
			Direction: direction, Set: d == rowSet, Calls: done.calls + submitted.calls,
			Bytes: done.bytes + submitted.bytes, BusyNS: done.busy,
			AsyncCalls: submitted.calls, AsyncBytes: submitted.bytes,
		})
	}
	return list
}

// Group is the copies of one process in one direction between one GPU and one class of host memory, of one size class.
type Group struct {
	GPU       string // UUID; "": unknown
	Direction schema.Direction
	Size      SizeClass
	HostMem   schema.HostMem
	Sync      Use
	Async     Use // NS is 0: the call only submits
	Ended     Use // the part of Async whose end a wait showed: NS is at least the time that the copies took
	Behind    Use // the same, but NS also contains kernels that were queued before the copies
}

// Use sums copies.
type Use struct {
	Calls uint64
	Bytes uint64
	NS    uint64
}

func (s *sum) use() Use { return Use{s.calls, s.bytes, s.busy} }

// groups returns the copies, those with the most bytes first.
func (s *state) groups() (list []Group) {
	for k, r := range s.rows {
		if k.row == rowSet {
			continue
		}
		g := Group{k.gpu, k.row, k.class, k.hostMem, r.sync.use(), r.async.use(), r.ended.use(), r.behind.use()}
		g.Async.NS = 0
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Sync.Bytes+b.Async.Bytes, a.Sync.Bytes+a.Async.Bytes), cmp.Compare(a.GPU, b.GPU),
			cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Size, b.Size), cmp.Compare(a.HostMem, b.HostMem))
	})
	return list
}
