package attach

// maxChanges bounds each kind of news that waits for the reader, which takes it every BatchAge.
const maxChanges = 4096

// ThreadID identifies a thread while it runs.
type ThreadID struct{ PID, TID uint32 }

// Changes are news about processes that do not come from the rings.
type Changes struct {
	Names map[ThreadID][16]byte // new names of threads
	Late  map[uint32]bool       // processes whose lateness may have changed, by pid
	Older []uint64              // processes that ran before gputap and still do; nil: unchanged
}

func note[K comparable, V any](news *map[K]V, key K, value V) {
	if *news == nil {
		*news = map[K]V{}
	}
	if len(*news) < maxChanges {
		(*news)[key] = value
	}
}

// TakeChanges returns the changes since the last call. If it is called before the rings are read, the table
// already knows every process that it names.
func (p *Probes) TakeChanges() Changes {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.changes
	p.changes = Changes{}
	return taken
}
