package tensor

import (
	"cmp"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Config configures a Fold. The zero Config is usable.
type Config struct {
	Keep   time.Duration // a process is forgotten this long after its last event; 0: never
	Window time.Duration // length of the windows of verdicts; 0: one minute
}

// Fold keeps the allocators of all processes.
type Fold struct {
	mu        sync.Mutex
	window    time.Duration
	processes *process.Table[state]
	hosts     map[snapshot.HostID]host
	above     uint64 // series that scrapes found above the limit; not saved

	out snapshot.Writer
}

// New returns an empty Fold.
func New(cfg Config) *Fold {
	return &Fold{
		window:    cmp.Or(cfg.Window, time.Minute),
		processes: process.NewTable(process.Silent[state](cfg.Keep)), hosts: map[snapshot.HostID]host{},
	}
}

// Name returns the fold's name.
func (f *Fold) Name() string { return "tensor" }

// Kinds returns the kinds of batches that the fold reads. Memory batches tell the ends of processes.
func (f *Fold) Kinds() []schema.Kind {
	return []schema.Kind{schema.KindTensor, schema.KindMemory, schema.KindHost}
}

// Apply adds one batch.
func (f *Fold) Apply(b *schema.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe(b)
	switch b.Kind {
	case schema.KindTensor:
		f.applyBlocks(b)
	case schema.KindMemory:
		f.applyEnds(b)
		if b.Older != nil {
			f.endMissing(b)
		}
	}
	return nil
}

func (f *Fold) applyBlocks(b *schema.Batch) {
	entries := f.processes.Threads(b)
	for i, e := range entries {
		if s := &e.State; !s.released {
			s.run = max(s.run, b.Run)
			s.name(&b.Threads[i])
		}
	}
	var d *device
	thread, gpu := ^uint32(0), ^uint32(0) // of d
	for i := range b.Events {
		e := b.Tensor(i)
		op := b.Calls[e.Call].Op
		if op != schema.OpBlockAlloc && op != schema.OpBlockFree {
			continue
		}
		s := &entries[e.Thread].State
		if s.released {
			continue
		}
		if e.Thread != thread || e.GPU != gpu {
			thread, gpu, d = e.Thread, e.GPU, s.on(b, e.GPU)
		}
		s.apply(d, &e, b.Threads[thread].TID, op == schema.OpBlockFree, f.window)
	}
}

// applyEnds takes the ends of processes and images.
func (f *Fold) applyEnds(b *schema.Batch) {
	ends := false
	for i := range b.Calls {
		ends = ends || b.Calls[i].Op == schema.OpExit || b.Calls[i].Op == schema.OpExec
	}
	if !ends {
		return
	}
	entries := f.processes.Threads(b)
	for i := range b.Events {
		switch b.Calls[b.Call().At(i)].Op {
		case schema.OpExec:
			entries[b.Thread().At(i)].State.exec(schema.KTime(b.Time().At(i)), f.window)
		case schema.OpExit:
			end(entries[b.Thread().At(i)], schema.KTime(b.Time().At(i)))
		}
	}
}

// end notes the end of a process. Reports of it may still come in a later batch, so its blocks stay until Tick.
func end(p *process.Entry[state], at schema.KTime) {
	if !p.Ended {
		p.Ended, p.State.ended = true, max(at, 1)
	}
}

// Tick closes the windows that end before a time until which all events of the host have been seen, and judges the
// processes. It drops the blocks of the processes that ended before that time.
func (f *Fold) Tick(h *schema.Header, through schema.KTime) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := hostOf(h)
	if b := f.hosts[id][h.BootID]; b != nil && b.windows.Close(schema.KTime(f.window), through) {
		f.judge(id, h.BootID, b)
	}
	for _, p := range f.processes.Of(id) {
		if p.Ended && p.ID.BootID == h.BootID && p.State.ended <= through && !p.State.released {
			p.State.release()
		}
	}
}

// Forget removes a host, between two batches.
func (f *Fold) Forget(cluster, hostname string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: hostname}
	f.processes.Forget(id)
	delete(f.hosts, id)
}
