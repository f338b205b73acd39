package bandwidth

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is what one process copied.
type Process struct {
	process.Info
	Calls    []process.Call // failed calls by CUresult too
	Copies   []DirectionUse // in the order of schema.Direction, then sets; those that were used
	Recorded uint64         // copies and sets that were recorded into a graph: they did not run
	Waits    Waits
}

// DirectionUse is the copies of one direction, or the sets. Calls and Bytes are all that succeeded; AsyncCalls
// and AsyncBytes are the part of them that was submitted, and BusyNS is host time in the others.
type DirectionUse struct {
	Direction  schema.Direction // of sets, schema.DirNone
	Set        bool
	Calls      uint64
	Bytes      uint64
	BusyNS     uint64
	AsyncCalls uint64
	AsyncBytes uint64
}

// Word names the row: the direction, or "set".
func (d *DirectionUse) Word() string {
	if d.Set {
		return "set"
	}
	return d.Direction.String()
}

// Throughput is the bytes per second that synchronous copies achieved, 0 without any.
func (d *DirectionUse) Throughput() float64 {
	if d.BusyNS == 0 {
		return 0
	}
	return float64(d.Bytes-d.AsyncBytes) / (float64(d.BusyNS) / 1e9)
}

// Report lists the processes in order of first sight.
func (m *Meter) Report() []Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.processes.All()
	report := make([]Process, 0, len(all))
	for _, e := range all {
		report = append(report, Process{
			Info:  e.Info,
			Calls: e.Calls.Clone(), Copies: e.State.report(), Recorded: e.State.recorded,
			Waits: e.State.waits,
		})
	}
	return report
}

func (s *state) report() []DirectionUse {
	var list []DirectionUse
	for d := range numRows {
		done, submitted := &s.sync[d], &s.async[d]
		if done.calls+submitted.calls == 0 {
			continue
		}
		direction := d
		if d == rowSet {
			direction = schema.DirNone
		}
		list = append(list, DirectionUse{
			Direction: direction, Set: d == rowSet, Calls: done.calls + submitted.calls, Bytes: done.bytes + submitted.bytes, BusyNS: done.busy,
			AsyncCalls: submitted.calls, AsyncBytes: submitted.bytes,
		})
	}
	return list
}
