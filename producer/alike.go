package producer

import (
	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// What a record becomes is remembered: programs make the same calls again and again.

// knownMemory is an allocation or a free and what became of it. While nothing is learned a later one by the same
// thread, in the same place, becomes the same but for what it says itself.
type knownMemory struct {
	bpf.MemoryRecord
	learned    uint64
	generation uint64
	event      schema.Memory
}

func (k *knownMemory) is(m *bpf.MemoryRecord) bool {
	return k.Call == m.Call && k.TID == m.TID && k.ThreadStart == m.ThreadStart && k.CUDAContext == m.CUDAContext &&
		k.CUDAStream == m.CUDAStream && k.Device == m.Device && k.Time <= m.Time
}

// knownLaunch is a launch and what became of it. While nothing is learned, as after the control ring is read, a later
// one that differs in nothing but its time becomes the same.
type knownLaunch struct {
	bpf.LaunchRecord
	learned    uint64
	generation uint64
	event      schema.Launch
}

func (k *knownLaunch) is(l *bpf.LaunchRecord) bool {
	return k.Func == l.Func && k.Grid == l.Grid && k.Block == l.Block && k.SharedBytes == l.SharedBytes && k.CUDAStream == l.CUDAStream &&
		k.CUDAContext == l.CUDAContext && k.TID == l.TID && k.ThreadStart == l.ThreadStart && k.Call == l.Call && k.Capture == l.Capture && k.Time <= l.Time
}

// alike is where such a launch is remembered.
func (r *reader) alike(l *bpf.LaunchRecord) *knownLaunch {
	return &r.launches[(uint32(l.Func>>4)*31+l.TID*17+l.Grid[0]*7+l.Grid[1]*3+l.Block[0])%uint32(len(r.launches))]
}

// settled says that nothing of what a record was translated by begins after it, as where a handle was given out anew.
func (r *reader) settled(h *bpf.Head, t *thread, cudaStream uint64) bool {
	d, at := &t.process.devices, schema.KTime(h.Time)
	return r.known.last == t && d.moved <= at && d.streams[cudaStream].since <= at
}
