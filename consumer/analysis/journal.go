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
func (j *Journal) Close() { j.file.close() }

// Processes returns all processes in order of first sight, and the first error of the temporary file.
func (j *Journal) Processes() ([]*Process, error) {
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
				p.begin = m.Last
			}
			p.changes++
			*s = slot{p, m.At, p.changes, p.group(m)}
			j.add(p, change{at: m.At, bytes: m.Bytes, ptr: m.Ptr, id: s.id, group: s.group})
		case leak.Freed, leak.Replaced:
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
	largest := slices.MaxFunc(j.processes, func(a, b *Process) int { return a.held() - b.held() })
	if err := largest.spill(&j.file); err != nil {
		j.err = fmt.Errorf("write changes of memory to a temporary file: %w; set TMPDIR to a directory with more room",
			err)
	}
	j.buffered = 0
	for _, p := range j.processes {
		j.buffered += p.held()
	}
}
