package bandwidth

import (
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is what one process copied.
type Process struct {
	ID        schema.ProcessID
	Start     time.Time
	UID       uint32
	Comm      string
	Exe       string
	Container string
	Late      bool           // copied before gputap was attached: sums are too low
	Calls     []process.Call // failed calls by CUresult too
	Copies    []DirectionUse // in the order of schema.Direction; directions that were used
}

// DirectionUse is the copies of one direction. Calls and Bytes are all that succeeded; AsyncCalls
// and AsyncBytes are the part of them that was submitted, and BusyNS is host time in the others.
type DirectionUse struct {
	Direction  schema.Direction
	Calls      uint64
	Bytes      uint64
	BusyNS     uint64
	AsyncCalls uint64
	AsyncBytes uint64
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
			ID: e.ID, Start: e.Start, UID: e.UID, Comm: e.Comm, Exe: e.Exe, Container: e.Container, Late: e.Late,
			Calls: e.Calls.Clone(), Copies: e.State.report(),
		})
	}
	return report
}

func (s *state) report() []DirectionUse {
	var list []DirectionUse
	for d := range schema.NumDirections {
		done, submitted := &s.sync[d], &s.async[d]
		if done.calls+submitted.calls == 0 {
			continue
		}
		list = append(list, DirectionUse{
			Direction: d, Calls: done.calls + submitted.calls, Bytes: done.bytes + submitted.bytes, BusyNS: done.busy,
			AsyncCalls: submitted.calls, AsyncBytes: submitted.bytes,
		})
	}
	return list
}
