package bandwidth

import (
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is the copies, sets and waits of one process.
type Process struct {
	process.Info
	Calls    []process.Call // includes failed calls
	Copies   []DirectionUse // the rows in use: directions in the order of schema.Direction, then sets
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
			Direction: direction, Set: d == rowSet, Calls: done.calls + submitted.calls,
			Bytes: done.bytes + submitted.bytes, BusyNS: done.busy,
			AsyncCalls: submitted.calls, AsyncBytes: submitted.bytes,
		})
	}
	return list
}
