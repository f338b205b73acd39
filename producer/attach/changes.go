package attach

import "sync"

// maxChanges bounds what waits for the reader, which takes it every BatchAge.
const maxChanges = 4096

// ThreadID identifies a thread while it runs.
type ThreadID struct{ PID, TID uint32 }

// Changes are news about processes that do not come from the rings.
type Changes struct {
	Names map[ThreadID][16]byte // new names of threads
	Late  map[uint32]bool       // processes whose lateness may have changed, by pid
	Older []uint64              // processes that ran before gputap and still do; nil: unchanged
}

// mailbox collects changes. Any goroutine adds, the reader takes.
type mailbox struct {
	mu      sync.Mutex
	changes Changes
}

func (m *mailbox) addName(pid, tid uint32, name [16]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes.Names == nil {
		m.changes.Names = map[ThreadID][16]byte{}
	}
	if len(m.changes.Names) < maxChanges {
		m.changes.Names[ThreadID{pid, tid}] = name
	}
}

func (m *mailbox) addLate(pid uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes.Late == nil {
		m.changes.Late = map[uint32]bool{}
	}
	if len(m.changes.Late) < maxChanges {
		m.changes.Late[pid] = true
	}
}

func (m *mailbox) setOlder(older []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes.Older = older
}

func (m *mailbox) take() Changes {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.changes
	m.changes = Changes{}
	return taken
}
