package producer

import (
	"os"
	"slices"

	"github.com/gputap/gputap/schema"
)

// What the probes learn of processes: from side-band records at once, from scans at intervals.

// step is what each interval does.
func (p *probes) step(now schema.KTime) {
	p.followHost()
	p.skipped++
	if p.takeRescan() {
		p.scanAll()
	} else if p.side == nil || p.skipped >= scanEvery {
		p.scan()
	}
	p.attachPending()
	p.forgetLeft(now)
	p.detachUnused(now)
	p.attachPending()
	p.tellOlder()
}

// woken deals with what the side-band found.
func (p *probes) woken() {
	if p.takeRescan() {
		p.scanAll()
	}
	p.attachPending()
}

// scan notes what running processes have mapped, and which are gone.
func (p *probes) scan() {
	began := bootTime()
	if err := p.scanner.scan(func(pid int, found []mapped) { p.saw(pid, found, began) }); err != nil {
		p.log.Error("scan for libraries failed", "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.users.byPID {
		if !p.scanner.alive(int(pid)) && p.users.leaving[pid] == 0 {
			p.users.exit(pid, began)
		}
	}
	for pid := range p.users.older {
		if !p.scanner.alive(int(pid)) {
			delete(p.users.older, pid)
			delete(p.scanner.hidden, pid)
		}
	}
	if p.scanned == 0 {
		for pid := range p.scanner.sizes {
			p.users.older[uint32(pid)] = true
		}
	}
	p.skipped, p.scanned = 0, began
}

// scanAll looks at every process, whatever is known of it.
func (p *probes) scanAll() {
	p.scanner.sizes = nil
	p.scan()
}

// saw notes what a scan found in one process. It was mapped at some time since the scan before.
func (p *probes) saw(pid int, found []mapped, began schema.KTime) {
	p.mu.Lock()
	known := p.users.byPID[uint32(pid)] != nil
	p.mu.Unlock()
	if known && found == nil {
		found = p.scanner.mappedBy(pid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users.agree(uint32(pid), found, began)
	for _, m := range found {
		m.at = p.scanned
		p.maps(m, bootTime())
	}
}

// forgetLeft forgets what ended processes had mapped, unless other threads of theirs go on.
func (p *probes) forgetLeft(now schema.KTime) {
	p.mu.Lock()
	var due []uint32
	for pid, at := range p.users.leaving {
		if now >= at+leaveGrace {
			due = append(due, pid)
		}
	}
	p.mu.Unlock()
	for _, pid := range due {
		began := bootTime()
		found := p.scanner.mappedBy(int(pid))
		p.mu.Lock()
		p.users.agree(pid, found, began)
		if len(found) == 0 {
			delete(p.users.leaving, pid)
			delete(p.users.older, pid)
		}
		p.mu.Unlock()
	}
}

// tellOlder has the reader say which processes from before are still there, whenever that has changed. Who does not see
// all processes says nothing: whoever is left out counts as ended.
func (p *probes) tellOlder() {
	if p.allSeen == nil {
		seen := seesAll()
		p.allSeen = &seen
	}
	if !*p.allSeen {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.scanned == 0 {
		return // /proc could not be listed
	}
	list := p.users.fromBefore(p.scanner.hidden)
	if p.told != nil && slices.Equal(list, p.told) || len(list) > mostOlder {
		return
	}
	p.told = list
	p.changes.tell(list)
}

// mostOlder is what a batch has room for.
const mostOlder = 1 << 14

// seesAll reports whether /proc is the host's and shows processes of others.
func seesAll() bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || own != hostPIDs {
		return false
	}
	_, err = os.ReadFile("/proc/1/statm")
	return err == nil
}

// isLate reports whether a process may have made calls before its library was attached.
func (p *probes) isLate(pid uint32, start schema.KTime) bool {
	if p.side != nil {
		p.side.catchUp() // its mapping may not have been read
		p.recognize(pid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.users.late(pid, start)
}

// ended notes that an image is gone.
func (p *probes) ended(pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users.older, pid)
}

// sideFailed is told when CPUs cannot be followed, and when they can again.
func (p *probes) sideFailed(err error) {
	if err == nil {
		p.metrics.sideband.Store(1)
		p.log.Info("perf side-band complete again")
		return
	}
	p.metrics.sideband.Store(0)
	p.log.Error("perf side-band incomplete", "err", err)
}

func (p *probes) takeRescan() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := p.rescan
	p.rescan = false
	return wanted
}

// apply takes a round of side-band records.
func (p *probes) apply(records []sideRecord) {
	p.mu.Lock()
	for i := range records {
		p.note(&records[i])
	}
	wanted := p.rescan || len(p.pending) > 0
	p.mu.Unlock()
	if wanted {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// note takes one record; p.mu is held.
func (p *probes) note(r *sideRecord) {
	switch r.kind {
	case sideMap:
		p.maps(mapped{
			inode: r.inode, path: r.path, pid: int(r.pid), area: area{r.start, r.end}, at: r.time, recorded: true,
		}, 0)
	case sideName:
		if p.users.byPID[r.pid] != nil {
			p.changes.name(r.pid, r.tid, r.name)
		}
	case sideExec:
		p.users.exec(r.pid, r.time)
	case sideFork:
		p.users.fork(r.pid, r.parent, r.time)
	case sideExit:
		if r.pid == r.tid {
			p.users.exit(r.pid, r.time)
		}
	case sideLost:
		p.metrics.sidebandLost.Add(r.lost)
		p.rescan = true
	}
}

// maps notes a mapping; p.mu is held.
func (p *probes) maps(m mapped, noted schema.KTime) {
	if p.users.maps(uint32(m.pid), use{inode: m.inode, at: m.at, noted: noted}) {
		p.changes.lateness(uint32(m.pid))
	}
	if p.users.files[m.inode] != nil {
		return
	}
	if len(p.pending) >= mostPending {
		p.rescan = true
		return
	}
	p.pending = append(p.pending, m)
}
