package export

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/schema"
)

// traceEvent is one object of the trace event format.
type traceEvent struct {
	Phase    string  `json:"ph"`
	Name     string  `json:"name"`
	Category string  `json:"cat,omitempty"`
	PID      uint32  `json:"pid"`
	TID      uint32  `json:"tid"`
	ID       string  `json:"id,omitempty"`
	At       micros  `json:"ts"`
	Took     *micros `json:"dur,omitempty"`
	Scope    string  `json:"s,omitempty"`
	Args     any     `json:"args,omitempty"`
}

// micros are ns that are written as µs.
type micros int64

func (m micros) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/1000, 'f', 3, 64), nil
}

// traceWriter writes events as they come.
type traceWriter struct {
	out   io.Writer
	lines *json.Encoder
	first int64 // ns since 1970: 0 of the trace
	comma bool
	err   error // of begin
}

func (w *traceWriter) begin(out io.Writer, first int64) {
	w.out, w.lines, w.first = out, event.NewEncoder(out), first
	_, w.err = io.WriteString(out, `{"displayTimeUnit":"ns","otherData":{"first_event":"`+
		time.Unix(0, first).UTC().Format(time.RFC3339Nano)+`","first_event_unix_ns":"`+strconv.FormatInt(first, 10)+
		"\"},\"traceEvents\":[\n")
}

func (w *traceWriter) write(e *traceEvent) error {
	if w.comma {
		if _, err := io.WriteString(w.out, ","); err != nil {
			return err
		}
	}
	w.comma = true
	return w.lines.Encode(e)
}

func (w *traceWriter) end() error {
	_, err := io.WriteString(w.out, "]}\n")
	return errors.Join(w.err, err)
}

// since converts a time to one of the trace. What was live before the first event begins with it.
func (w *traceWriter) since(at int64) micros { return micros(max(at-w.first, 0)) }

// tracks gives processes, threads and CUDA streams their numbers and names in the trace.
type tracks struct {
	to        *traceWriter
	processes map[schema.ProcessID]*processTrack
	pids      map[uint32]bool
}

type processTrack struct {
	pid     uint32 // in the trace
	threads map[uint32]bool
	streams map[streamKey]*streamTrack
}

type streamKey struct {
	gpu    string
	handle uint64
}

type streamTrack struct {
	tid uint32
	end int64 // of the last slice, ns since 1970
}

// firstStream is above the PIDs of Linux, which end at 2²².
const firstStream = 1 << 24

func newTracks(to *traceWriter) tracks {
	return tracks{to: to, processes: map[schema.ProcessID]*processTrack{}, pids: map[uint32]bool{}}
}

// process returns the track of a process. Its PID is that of Linux, unless another process of the trace has it.
func (t *tracks) process(id schema.ProcessID, comm, job string) *processTrack {
	if p := t.processes[id]; p != nil {
		return p
	}
	p := &processTrack{pid: id.PID, threads: map[uint32]bool{}, streams: map[streamKey]*streamTrack{}}
	for next := uint32(1 << 22); t.pids[p.pid]; next++ {
		p.pid = next
	}
	t.processes[id], t.pids[p.pid] = p, true
	name := comm + " (" + strconv.Itoa(int(id.PID)) + ") on " + id.Host
	t.name("process_name", p.pid, 0, map[string]any{"name": name})
	if job != "" {
		t.name("process_labels", p.pid, 0, map[string]any{"labels": job})
	}
	return p
}

func (t *tracks) thread(p *processTrack, tid uint32, name string) uint32 {
	if !p.threads[tid] {
		p.threads[tid] = true
		t.name("thread_name", p.pid, tid, map[string]any{"name": name})
	}
	return tid
}

func (t *tracks) stream(p *processTrack, gpu string, handle uint64) *streamTrack {
	key := streamKey{gpu, handle}
	s := p.streams[key]
	if s == nil {
		s = &streamTrack{tid: firstStream + uint32(len(p.streams))}
		p.streams[key] = s
		name := "CUDA stream 0x" + strconv.FormatUint(handle, 16) + " on " + gpuName(gpu, -1)
		t.name("thread_name", p.pid, s.tid, map[string]any{"name": name})
		t.name("thread_sort_index", p.pid, s.tid, map[string]any{"sort_index": s.tid})
	}
	return s
}

// name writes metadata. A failed write fails the next one, too.
func (t *tracks) name(what string, pid, tid uint32, args map[string]any) {
	if err := t.to.write(&traceEvent{Phase: "M", Name: what, PID: pid, TID: tid, Args: args}); err != nil {
		t.to.err = errors.Join(t.to.err, err)
	}
}
