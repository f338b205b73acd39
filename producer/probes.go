package producer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// probes are the attached libraries. A library is attached once per file, whatever the number of
// processes that map it, and before any of them where it is the host's own.
type probes struct {
	tap     *bpf.Tap
	wanted  []schema.CallID
	began   schema.KTime // processes older than this ran before the first probe
	metrics *metrics
	log     *slog.Logger
	scanner scanner // used at start, then by run alone

	mu       sync.Mutex
	attached map[inode]*attachment
	refused  map[inode]bool
	mapped   map[inode]bool  // inodes as /proc/PID/maps writes them, which were dealt with
	late     map[uint32]bool // processes that had mapped a library before it was attached
}

func newProbes(tap *bpf.Tap, features []schema.Kind, m *metrics, log *slog.Logger) *probes {
	return &probes{
		tap: tap, wanted: wantedCalls(features), began: bootTime(), metrics: m, log: log,
		attached: map[inode]*attachment{}, refused: map[inode]bool{}, mapped: map[inode]bool{}, late: map[uint32]bool{},
	}
}

// attach probes one file unless it is already; a file that cannot be probed is tried once.
func (p *probes) attach(open, name string) error {
	id, err := inodeAt(open)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attached[id] != nil || p.refused[id] {
		return nil
	}
	a, err := attach(p.tap, open, name, p.wanted)
	if err != nil {
		p.refused[id] = true
		p.metrics.attachFailed.Add(1)
		return err
	}
	p.attached[id] = a
	p.metrics.libraries.Add(1)
	p.metrics.probes.Add(int64(a.library.Attached))
	p.metrics.stepped.Add(int64(a.library.Stepped))
	p.log.Info("library attached", "library", name, "probes", a.library.Attached, "stepped", a.library.Stepped,
		"absent", len(a.library.Absent))
	return nil
}

// scan attaches what running processes have mapped.
func (p *probes) scan() {
	found, err := p.scanner.scan()
	if err != nil {
		p.log.Error("scan for libraries failed", "err", err)
		return
	}
	for _, m := range p.fresh(found) {
		if err := p.attach(m.open(), m.path); err != nil {
			p.log.Warn("library not attached", "library", m.path, "pid", m.pid, "err", err)
		}
	}
}

// fresh picks the files that no earlier scan has dealt with. Every process that has one mapped has
// had time to make calls that no probe saw.
func (p *probes) fresh(found []mapped) []mapped {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []mapped
	for _, m := range found {
		if !p.mapped[m.inode] && p.attached[m.inode] == nil {
			p.late[uint32(m.pid)] = true
			list = append(list, m)
		}
	}
	for _, m := range list {
		p.mapped[m.inode] = true
	}
	return list
}

// isLate reports whether a process may have made calls before its library was attached.
func (p *probes) isLate(pid uint32, start schema.KTime) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return start < p.began || p.late[pid]
}

// ended forgets a process.
func (p *probes) ended(pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.late, pid)
}

// run scans at each interval until ctx ends.
func (p *probes) run(ctx context.Context, interval time.Duration) {
	for tick := time.NewTicker(interval); ; {
		select {
		case <-tick.C:
			p.scan()
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// libraries is what is attached, for the heartbeat.
func (p *probes) libraries() []schema.Library {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []schema.Library
	for _, a := range p.attached {
		list = append(list, a.library)
	}
	return list
}

// detach takes every probe out.
func (p *probes) detach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.attached {
		a.close()
		delete(p.attached, id)
	}
}
