package export

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/schema"
)

// tracks gives processes, threads, CUDA streams and counters their tracks.
type tracks struct {
	to        *traceWriter
	processes map[schema.ProcessID]*processTrack
	pids      map[uint32]bool
	others    map[string]uint64 // alerts about hosts and jobs
}

type processTrack struct {
	id       uint64
	pid      uint32 // in the trace
	threads  map[uint32]uint64
	streams  map[streamKey]*streamTrack
	counters map[string]uint64
	lanes    map[schema.MemClass]*lanes
	alerts   uint64 // 0: none yet
}

type streamKey struct {
	gpu    string
	handle uint64
}

type streamTrack struct {
	id  uint64
	end int64 // of the last slice, ns since 1970
}

func newTracks(to *traceWriter) tracks {
	return tracks{to: to, processes: map[schema.ProcessID]*processTrack{}, pids: map[uint32]bool{},
		others: map[string]uint64{}}
}

// process returns the track of a process. Its PID is that of Linux, unless another process of the trace has it.
func (t *tracks) process(id schema.ProcessID, comm, job string) *processTrack {
	if p := t.processes[id]; p != nil {
		return p
	}
	p := &processTrack{pid: id.PID, threads: map[uint32]uint64{}, streams: map[streamKey]*streamTrack{},
		counters: map[string]uint64{}, lanes: map[schema.MemClass]*lanes{}}
	for next := uint32(1 << 22); t.pids[p.pid]; next++ {
		p.pid = next
	}
	t.processes[id], t.pids[p.pid] = p, true
	name := fmt.Sprintf("%s (%d) on %s", comm, id.PID, id.Host)
	of := message(nil).number(processPID, uint64(p.pid)).text(processName, name)
	if job != "" {
		of = of.text(processLabels, job)
	}
	p.id = t.to.track(name, 0, message(nil).part(trackProcess, of))
	return p
}

func (t *tracks) thread(p *processTrack, tid uint32, name string) uint64 {
	if p.threads[tid] == 0 {
		of := message(nil).number(threadPID, uint64(p.pid)).number(threadTID, uint64(tid)).text(threadName, name)
		p.threads[tid] = t.to.track(name, 0, message(nil).part(trackThread, of)) // its PID says where
	}
	return p.threads[tid]
}

func (t *tracks) stream(p *processTrack, gpu string, handle uint64) *streamTrack {
	key := streamKey{gpu, handle}
	s := p.streams[key]
	if s == nil {
		s = &streamTrack{id: t.to.track(fmt.Sprintf("CUDA stream %#x on %s", handle, gpuName(gpu, -1)), p.id, nil)}
		p.streams[key] = s
	}
	return s
}

// bytesOf returns the track of a counter of bytes.
func (t *tracks) bytesOf(p *processTrack, name string) uint64 {
	if p.counters[name] == 0 {
		p.counters[name] = t.to.track(name, p.id, message(nil).part(trackCounter,
			message(nil).number(counterUnit, unitBytes)))
	}
	return p.counters[name]
}

// alerts returns the track of the alerts about a process.
func (t *tracks) alerts(p *processTrack) uint64 {
	if p.alerts == 0 {
		p.alerts = t.to.track("alerts", p.id, nil)
	}
	return p.alerts
}

// other returns the track of the alerts about a host or a job.
func (t *tracks) other(name string) uint64 {
	if t.others[name] == 0 {
		t.others[name] = t.to.track(name, 0, nil)
	}
	return t.others[name]
}

// lanes are tracks with one name: slices on a track must nest, and lifetimes overlap. The viewer joins tracks of equal
// names. They are in the order of the ends of their last slices.
type lanes struct {
	ids  []uint64
	ends []int64
}

// lane returns a track that is free from begin on, and takes it until end.
func (t *tracks) lane(p *processTrack, class schema.MemClass, begin, end int64) (id uint64) {
	l := p.lanes[class]
	if l == nil {
		l = &lanes{}
		p.lanes[class] = l
	}
	if i, _ := slices.BinarySearch(l.ends, begin+1); i > 0 {
		id = l.ids[i-1]
		l.ids, l.ends = slices.Delete(l.ids, i-1, i), slices.Delete(l.ends, i-1, i)
	} else {
		id = t.to.track(class.String()+" memory", p.id, nil)
	}
	i, _ := slices.BinarySearch(l.ends, end+1)
	l.ids, l.ends = slices.Insert(l.ids, i, id), slices.Insert(l.ends, i, end)
	return id
}
