package analysis

import (
	"fmt"
	"slices"

	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// maxBuffered is how many changes a Journal holds in memory.
const maxBuffered = 1 << 20

// Journal collects the movements of the memory of processes.
type Journal struct {
	processes []*Process // in order of first sight
	byID      map[schema.ProcessID]*Process
	last      *Process // of the last movement
	file      runFile
	writing   chan written // of the changes that are written to the file; nil: none
	spare     []change     // memory for changes
	buffered  int
	limit     int               // of buffered
	stacks    map[string]string // equal texts of stacks share their memory
	text      []byte            // reused
	err       error
}

// NewJournal returns an empty Journal that writes to a temporary file in dir if it must; "": the default directory for
// temporary files.
func NewJournal(dir string) *Journal {
	return &Journal{byID: map[schema.ProcessID]*Process{}, file: runFile{dir: dir}, limit: maxBuffered,
		stacks: map[string]string{}}
}

// Close removes the temporary file.
func (j *Journal) Close() {
	j.wait()
	j.file.close()
}

// Processes returns all processes in order of first sight, and the first error of the temporary file.
func (j *Journal) Processes() ([]*Process, error) {
	j.wait()
	for _, p := range j.processes {
		p.Info = *p.info
	}
	return j.processes, j.err
}

// slot is live memory of a Tracker.
type slot struct {
	process *Process
	at      schema.KTime
	id      uint32
	group   uint32
}

// Receiver returns a function for leak.Config.OnMovement of one Tracker.
func (j *Journal) Receiver() func(*leak.Movement) {
	var slots []slot
	return func(m *leak.Movement) {
		if !m.Class.OnGPU() {
			return
		}
		if int(m.Slot) >= len(slots) {
			slots = slices.Grow(slots, int(m.Slot)+1-len(slots))[:max(len(slots), int(m.Slot)+1)]
		}
		s := &slots[m.Slot]
		switch m.Cause {
		case leak.Allocated, leak.Known:
			p := j.process(m)
			if m.Cause == leak.Known {
				p.known, p.begin = m.Last, m.Begin
			} else {
				p.cover(m.At)
			}
			p.changes++
			*s = slot{p, m.At, p.changes, p.group(m)}
			j.add(p, change{at: m.At, bytes: m.Bytes, ptr: m.Ptr, id: s.id, group: s.group})
		case leak.Freed, leak.Replaced:
			s.process.cover(max(m.At, s.at))
			j.add(s.process, change{at: max(m.At, s.at), bytes: m.Bytes, ptr: m.Ptr, id: s.id, group: s.group | freed})
		case leak.Unfreed:
			s.process.ended = max(m.At, s.process.ended)
		}
	}
}

// process returns the process of a movement.
func (j *Journal) process(m *leak.Movement) *Process {
	p := j.last
	if p == nil || p.info != m.Info {
		if p = j.byID[m.Info.ID]; p == nil {
			p = &Process{journal: j, at: map[groupKey]uint32{}}
			j.byID[m.Info.ID] = p
			j.processes = append(j.processes, p)
		}
		j.last, p.info = p, m.Info
	}
	p.offset = m.Offset
	return p
}

// stack returns a text that is equal for equal stacks.
func (j *Journal) stack(s *schema.Stack) string {
	if s == nil {
		return ""
	}
	j.text = append(j.text[:0], s.Name...)
	for _, frame := range s.Frames {
		j.text = append(append(j.text, '\n'), frame...)
	}
	text, known := j.stacks[string(j.text)]
	if !known {
		text = string(j.text)
		j.stacks[text] = text
	}
	return text
}

func (j *Journal) add(p *Process, c change) {
	if c.at >= p.newest {
		p.newest = c.at
		p.sorted = append(p.sorted, c)
	} else {
		p.late = append(p.late, c)
	}
	if j.buffered++; j.buffered < j.limit || j.err != nil {
		return
	}
	j.spill(slices.MaxFunc(j.processes, func(a, b *Process) int { return a.held() - b.held() }))
	j.buffered = 0
	for _, p := range j.processes {
		j.buffered += p.held()
	}
}

// written are changes of a process that are in the file.
type written struct {
	process *Process
	changes []change
	run     run
	err     error
}

// spill moves the changes of a process to the file. They are written while the caller goes on.
func (j *Journal) spill(p *Process) {
	j.wait()
	w := written{process: p, changes: p.merge()}
	p.sorted, p.late, j.spare = j.spare, p.late[:0], nil
	done := make(chan written, 1)
	j.writing = done
	go func() {
		w.run, w.err = j.file.write(w.changes)
		done <- w
	}()
}

// wait waits until the changes are in the file.
func (j *Journal) wait() {
	if j.writing == nil {
		return
	}
	w := <-j.writing
	j.writing, j.spare = nil, w.changes[:0]
	w.process.runs = append(w.process.runs, w.run)
	if w.err != nil && j.err == nil {
		j.err = fmt.Errorf("write changes of memory to a temporary file: %w; set TMPDIR to a directory with more room",
			w.err)
	}
}
