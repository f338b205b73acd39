package analysis

import (
	"cmp"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// Process is a process whose memory moved, or was live at the beginning.
type Process struct {
	process.Info
	GPUs   []GPU   // on which it allocated, in order of first sight
	Groups []Group // of its memory

	journal *Journal
	info    *process.Info // of the Tracker
	offset  int64         // wall clock minus KTime
	begin   schema.KTime  // of the range; 0: the process is seen from its start
	known   schema.KTime  // of the last event of its host before the range; begin is not before it
	ended   schema.KTime  // when its unfreed memory ended with it; 0: it runs, or freed all
	at      map[groupKey]uint32
	latest  groupKey // that was looked up last
	number  uint32   // its index
	changes uint32   // allocations so far

	sorted []change // by time, not in the file
	late   []change // each earlier than one before it
	newest schema.KTime
	runs   []run
}

// GPU is a GPU as a process sees it.
type GPU struct {
	UUID    string // "": unknown
	Ordinal int32  // in the numbering of the process; -1: unknown
}

// Group is memory that one thread allocated with one call on one GPU, from one place of the program if that is known.
type Group struct {
	GPU    int // index into GPUs
	Class  schema.MemClass
	TID    uint32
	Thread string // its name
	Symbol string
	Stack  []string // innermost first; empty: unknown
	Name   string   // of the variable; "": unknown
}

type groupKey struct {
	gpu    int
	class  schema.MemClass
	tid    uint32
	thread string
	symbol string
	stack  string // its frames and its name, separated by line feeds
}

// group returns the index of a movement's group, adding it if it is new.
func (p *Process) group(m *leak.Movement) uint32 {
	if p.isLatest(m) {
		return p.number
	}
	key := groupKey{p.gpu(m.GPU, m.GPUNo), m.Class, m.TID, m.Thread, m.Symbol, p.journal.stack(m.Stack)}
	i, known := p.at[key]
	if !known {
		i = uint32(len(p.Groups))
		p.at[key] = i
		g := Group{GPU: key.gpu, Class: key.class, TID: key.tid, Thread: key.thread, Symbol: key.symbol}
		if m.Stack != nil {
			g.Stack, g.Name = slices.Clone(m.Stack.Frames), m.Stack.Name
		}
		p.Groups = append(p.Groups, g)
	}
	p.latest, p.number = key, i
	return i
}

// isLatest reports whether a movement is of the group that was looked up last.
func (p *Process) isLatest(m *leak.Movement) bool {
	if len(p.Groups) == 0 || m.Stack != nil || p.latest.stack != "" || m.TID != p.latest.tid ||
		m.Class != p.latest.class || m.Symbol != p.latest.symbol || m.Thread != p.latest.thread {
		return false
	}
	gpu := &p.GPUs[p.latest.gpu]
	return gpu.Ordinal == m.GPUNo && gpu.UUID == m.GPU
}

// gpu returns the index of a GPU. A UUID that becomes known later names the GPU of earlier movements, too.
func (p *Process) gpu(uuid string, ordinal int32) int {
	for i := range p.GPUs {
		g := &p.GPUs[i]
		if g.Ordinal == ordinal && (g.UUID == uuid || g.UUID == "" || uuid == "") {
			g.UUID = cmp.Or(g.UUID, uuid)
			return i
		}
	}
	p.GPUs = append(p.GPUs, GPU{uuid, ordinal})
	return len(p.GPUs) - 1
}

// wall converts a time of the process's host.
func (p *Process) wall(at schema.KTime) time.Time { return time.Unix(0, int64(at)+p.offset).UTC() }

// cover moves the beginning of the range before a change: NATS may store an event long after its time.
func (p *Process) cover(at schema.KTime) {
	if at < p.begin {
		p.begin = max(at, p.known)
	}
}

// isBefore reports whether a change is from before the range. The last event before it may be an allocation, and the
// range may begin at that time.
func (p *Process) isBefore(c *change) bool {
	return c.at < p.begin || c.at <= p.known && c.group&freed == 0
}

// Ended returns when the memory that the process had not freed ended with it; zero: it runs, or it freed all.
func (p *Process) Ended() time.Time {
	if p.ended == 0 {
		return time.Time{}
	}
	return p.wall(p.ended)
}

// Partial reports whether the range begins within the life of the process.
func (p *Process) Partial() bool { return p.begin > p.ID.Start }
