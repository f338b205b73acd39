package attach

import (
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// maxOlder is the number of older processes that fit into a batch.
const maxOlder = 1 << 14

// IsLate reports whether a process may have made calls before its library was attached.
func (p *Probes) IsLate(pid uint32, start schema.KTime) bool {
	p.CatchUp() // the record of its mapping may be unread
	if p.side != nil {
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
	if p.skipped++; p.side == nil || p.skipped >= scanEvery {
		p.scan(false)
	}
	p.stepWoken()
	p.removeEnded(now)
	p.detachUnused(now)
	p.attachPending()
	p.reportOlder()
}

// stepWoken handles the findings of the side-band.
func (p *Probes) stepWoken() {
	p.mu.Lock()
	lost := p.rescan
	p.rescan = false
	p.mu.Unlock()
	if lost {
		p.scan(true)
	}
	p.attachPending()
}

// scan notes the libraries that running processes have mapped, and which processes ended. With all it also reads
// processes whose address space did not change.
func (p *Probes) scan(all bool) {
	began := bootTime()
	err := p.scanner.Scan(all, func(pid uint32, found []library.Mapping) { p.scannedProcess(pid, found, began) })
	if err != nil {
		p.log.Error("scan for libraries failed", "err", err)
		return
	}
	running := p.scanner.Processes
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.users.byPID {
		if running[pid] == nil && p.users.leaving[pid] == 0 {
			p.users.exit(pid, began)
		}
	}
	maps.DeleteFunc(p.users.older, func(pid uint32, _ bool) bool { return running[pid] == nil })
	if p.scanned == 0 {
		for pid := range running {
			p.users.older[pid] = true
		}
	}
	p.skipped, p.scanned = 0, began
}

// scannedProcess notes the libraries that a scan found in one process. They were mapped after the scan before.
func (p *Probes) scannedProcess(pid uint32, found []library.Mapping, began schema.KTime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users.byPID[pid] != nil && len(found) == 0 {
		p.mu.Unlock()
		found = library.MappedBy(pid)
		p.mu.Lock()
	}
	p.users.replace(pid, found, began)
	for _, m := range found {
		p.addMapping(pending{Mapping: m, at: p.scanned, noted: bootTime()})
	}
}

// removeEnded removes the mappings of ended processes, unless other threads of theirs still run.
func (p *Probes) removeEnded(now schema.KTime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, at := range maps.Clone(p.users.leaving) {
		if now < at+leaveGrace {
			continue
		}
		p.mu.Unlock()
		began := bootTime()
		found := library.MappedBy(pid)
		p.mu.Lock()
		p.users.replace(pid, found, began)
		if len(found) == 0 {
			delete(p.users.leaving, pid)
			delete(p.users.older, pid)
		}
	}
}

// reportOlder hands the reader the list of older processes that still run, when it changed. Without sight of all
// processes it reports nothing: a reader of the list takes a missing process as ended.
func (p *Probes) reportOlder() {
	if p.scanned == 0 || !seesAllProcesses() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.users.olderUsers(p.scanner.Processes)
	if p.reported != nil && slices.Equal(list, p.reported) || len(list) > maxOlder {
		return
	}
	p.reported, p.changes.Older = list, list
}

// seesAllProcesses reports whether /proc is the host's and shows the processes of other users.
var seesAllProcesses = sync.OnceValue(func() bool {
	_, err := os.ReadFile("/proc/1/statm")
	return err == nil && procfs.InHostPIDNamespace()
})

// sidebandChanged reports when rings cannot follow the CPUs, and with nil when they can again.
func (p *Probes) sidebandChanged(err error) {
	if err == nil {
		p.metrics.sideband.Set(1)
		p.log.Info("perf side-band covers all CPUs again")
		return
	}
	p.metrics.sideband.Set(0)
	p.log.Error("perf side-band does not cover all CPUs", "err", err)
}

// apply takes a round of side-band records.
func (p *Probes) apply(records []sideRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range records {
		p.applyOne(&records[i])
	}
	if p.rescan || len(p.pending) > 0 {
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
		p.addMapping(pending{Mapping: r.mapping, at: r.time})
	case sideName:
		if p.users.byPID[r.pid] != nil {
			note(&p.changes.Names, ThreadID{r.pid, r.tid}, r.name)
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
		p.metrics.sidebandLost.Add(float64(r.lost))
		p.rescan = true
	}
}

// addMapping needs p.mu. It ignores PyTorch's library unless tensors are wanted.
func (p *Probes) addMapping(m pending) {
	torch := library.Of(m.Path) == schema.TorchLibrary
	if torch && !p.wanted.Wants(schema.KindTensor) {
		return
	}
	if p.users.add(m.PID, use{inode: m.Inode, torch: torch, at: m.at, noted: m.noted}) {
		note(&p.changes.Late, m.PID, true)
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
