package producer

import (
	"sync"
)

// mostChanges bounds what waits for the reader; it comes every BatchAge.
const mostChanges = 4096

type threadID struct{ pid, tid uint32 }

// changes is what was learned of processes beside the rings. Any goroutine adds, the reader takes.
type changes struct {
	mu    sync.Mutex
	names map[threadID][16]byte
	late  map[uint32]bool
	older []uint64 // nil: as told before
}

// name notes that a thread is called otherwise now.
func (c *changes) name(pid, tid uint32, name [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[threadID][16]byte{}
	}
	if len(c.names) < mostChanges {
		c.names[threadID{pid, tid}] = name
	}
}

// lateness notes that a process may be late, or not, after all.
func (c *changes) lateness(pid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil {
		c.late = map[uint32]bool{}
	}
	if len(c.late) < mostChanges {
		c.late[pid] = true
	}
}

// tell says which processes from before are still there.
func (c *changes) tell(older []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.older = older
}

// take empties it. Taken before the rings are read, it tells of no thread that they do not.
func (c *changes) take() (names map[threadID][16]byte, late map[uint32]bool, older []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, late, older = c.names, c.late, c.older
	c.names, c.late, c.older = nil, nil, nil
	return names, late, older
}

// change applies what was learned to the processes that are known; later events tell it.
func (p *processes) change(names map[threadID][16]byte, late map[uint32]bool) {
	for pid := range late {
		if q := p.byPID[pid]; q != nil && q.ended == 0 {
			if now := p.late.isLate(pid, q.Start); now != q.Late {
				q.Late, q.graphs.late = now, now
				p.renew(q)
			}
		}
	}
	for id, name := range names {
		if q := p.byPID[id.pid]; q != nil && q.ended == 0 {
			p.rename(q, id.tid, text(name[:]))
		}
	}
}

func (p *processes) rename(q *process, tid uint32, comm string) {
	for _, t := range p.threads {
		if t.process == q && t.tid == tid {
			t.comm, t.interned = comm, interned{}
		}
	}
	if tid == q.PID {
		q.Comm = comm
		p.renew(q)
	}
}

// renew lets the next event of a process tell it anew.
func (p *processes) renew(q *process) {
	q.interned = interned{}
	for _, t := range p.threads {
		if t.process == q {
			t.interned = interned{}
		}
	}
}
