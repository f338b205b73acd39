package attach

import (
	"os"
	"slices"

	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// maxOlder is the number of older processes that fit into a batch.
const maxOlder = 1 << 14

// TakeChanges returns the changes since the last call. If it is called before the rings are read, the table
// already knows every process that it names.
func (p *Probes) TakeChanges() Changes { return p.mailbox.take() }

// IsLate reports whether a process may have made calls before its library was attached.
func (p *Probes) IsLate(pid uint32, start schema.KTime) bool {
	if p.side != nil {
		p.side.catchUp() // the record of its mapping may be unread
		p.recognize(pid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.users.late(pid, start)
}

// Ended notes that an image of a process ended.
func (p *Probes) Ended(pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users.older, pid)
}

// Unseen returns a function that names the code at an address of a process if gputap does not see its calls; else it
// returns "". A function that no wanted kind needs counts as seen.
func (p *Probes) Unseen(pid uint32) func(name string, address uint64) string {
	images := library.ImagesOf(pid)
	return func(name string, address uint64) string { return images.Unseen(name, address, p.symbolAt) }
}

func (p *Probes) symbolAt(file library.Inode, offset uint64) (symbol string, probed, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.users.files[file]
	if l == nil || l.attachment == nil {
		return "", false, false
	}
	symbol = l.names[offset]
	return symbol, l.probed[symbol] || p.wanted.omits(symbol), true
}

// CatchUp reads the side-band records that exist now.
func (p *Probes) CatchUp() {
	if p.side != nil {
		p.side.catchUp()
	}
}

// step is the work of one interval.
func (p *Probes) step(now schema.KTime) {
	p.followHost()
	p.skipped++
	if p.takeRescan() {
		p.scanAll()
	} else if p.side == nil || p.skipped >= scanEvery {
		p.scan()
	}
	p.attachPending()
	p.removeEnded(now)
	p.detachUnused(now)
	p.attachPending()
	p.reportOlder()
}

// stepWoken handles the findings of the side-band.
func (p *Probes) stepWoken() {
	if p.takeRescan() {
		p.scanAll()
	}
	p.attachPending()
}

// scan notes the libraries that running processes have mapped, and which processes ended.
func (p *Probes) scan() { p.scanWith(p.scanner.Scan) }

// scanAll also reads processes whose address space did not change.
func (p *Probes) scanAll() { p.scanWith(p.scanner.ScanAll) }

func (p *Probes) scanWith(scan func(func(int, []library.Mapped)) error) {
	began := bootTime()
	if err := scan(func(pid int, found []library.Mapped) { p.scannedProcess(pid, found, began) }); err != nil {
		p.log.Error("scan for libraries failed", "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.users.byPID {
		if !p.scanner.Found(int(pid)) && p.users.leaving[pid] == 0 {
			p.users.exit(pid, began)
		}
	}
	for pid := range p.users.older {
		if !p.scanner.Found(int(pid)) {
			delete(p.users.older, pid)
			p.scanner.Remove(pid)
		}
	}
	if p.scanned == 0 {
		p.scanner.PIDs(func(pid int) { p.users.older[uint32(pid)] = true })
	}
	p.skipped, p.scanned = 0, began
}

// scannedProcess notes the libraries that a scan found in one process. They were mapped after the scan before.
func (p *Probes) scannedProcess(pid int, found []library.Mapped, began schema.KTime) {
	p.mu.Lock()
	known := p.users.byPID[uint32(pid)] != nil
	p.mu.Unlock()
	if known && found == nil {
		found = p.scanner.MappedBy(pid)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users.replace(uint32(pid), found, began)
	for _, m := range found {
		p.addMapping(pending{Mapped: m, at: p.scanned}, bootTime())
	}
}

// removeEnded removes the mappings of ended processes, unless other threads of theirs still run.
func (p *Probes) removeEnded(now schema.KTime) {
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
		found := p.scanner.MappedBy(int(pid))
		p.mu.Lock()
		p.users.replace(pid, found, began)
		if len(found) == 0 {
			delete(p.users.leaving, pid)
			delete(p.users.older, pid)
		}
		p.mu.Unlock()
	}
}

// reportOlder hands the reader the list of older processes that still run, when it changed. Without sight of all
// processes it reports nothing: a reader of the list takes a missing process as ended.
func (p *Probes) reportOlder() {
	if p.seesAll == nil {
		all := seesAllProcesses()
		p.seesAll = &all
	}
	if !*p.seesAll {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.scanned == 0 {
		return // /proc could not be listed
	}
	list := p.users.olderUsers(p.scanner.Unreadable)
	if p.reported != nil && slices.Equal(list, p.reported) || len(list) > maxOlder {
		return
	}
	p.reported = list
	p.mailbox.setOlder(list)
}

// seesAllProcesses reports whether /proc is the host's and shows the processes of other users.
func seesAllProcesses() bool {
	if !procfs.InHostPIDNamespace() {
		return false
	}
	_, err := os.ReadFile("/proc/1/statm")
	return err == nil
}

// sidebandChanged reports when rings cannot follow the CPUs, and with nil when they can again.
func (p *Probes) sidebandChanged(err error) {
	if err == nil {
		p.metrics.sideband.Store(1)
		p.log.Info("perf side-band covers all CPUs again")
		return
	}
	p.metrics.sideband.Store(0)
	p.log.Error("perf side-band does not cover all CPUs", "err", err)
}

func (p *Probes) takeRescan() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := p.rescan
	p.rescan = false
	return wanted
}

// apply takes a round of side-band records.
func (p *Probes) apply(records []sideRecord) {
	p.mu.Lock()
	for i := range records {
		p.applyOne(&records[i])
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

// applyOne needs p.mu.
func (p *Probes) applyOne(r *sideRecord) {
	switch r.kind {
	case sideMap:
		area := library.Area{Start: r.start, End: r.end}
		m := library.Mapped{Inode: r.inode, Path: r.path, PID: int(r.pid), Area: area}
		p.addMapping(pending{Mapped: m, at: r.time, recorded: true}, 0)
	case sideName:
		if p.users.byPID[r.pid] != nil {
			p.mailbox.addName(r.pid, r.tid, r.name)
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

// addMapping notes a mapping; p.mu is held. noted is when a scan found it, 0 for a side-band record.
func (p *Probes) addMapping(m pending, noted schema.KTime) {
	if p.users.add(uint32(m.PID), use{inode: m.Inode, at: m.at, noted: noted}) {
		p.mailbox.addLate(uint32(m.PID))
	}
	if p.users.files[m.Inode] != nil {
		return
	}
	if len(p.pending) >= maxPending {
		p.rescan = true
		return
	}
	p.pending = append(p.pending, m)
}
