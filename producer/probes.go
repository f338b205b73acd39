package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

const (
	// unusedGrace is how long a library stays attached that nobody maps: short programs come in rows.
	unusedGrace = schema.KTime(10 * time.Second)
	// leaveGrace is longer than the reader takes to see a process's first call.
	leaveGrace = schema.KTime(time.Second)
	// scanEvery is how many intervals a scan comes after where records tell the same sooner.
	scanEvery = 30
	// mostPending bounds the mappings that wait for an attach; beyond it a scan finds them.
	mostPending = 1024
)

// library is a driver library file that was found: probed, or refused where attachment is nil.
type library struct {
	*attachment
	fileIdentity
	shown    inode         // as maps and side-band records write it
	host     bool          // one of the host's own: attached whether mapped or not
	attached schema.KTime  // when the last of its probes was in place
	unused   schema.KTime  // since when nobody has it mapped; 0: somebody has
	closed   chan struct{} // nil until it is being detached, then closed when it is
}

// probes are the attached libraries. A library is attached once per file, whatever the number of
// processes that map it, and before any of them where it is the host's own. Only the goroutine of
// run, and New before it, looks for libraries, attaches and detaches.
type probes struct {
	tap     *bpf.Tap
	wanted  features
	named   []string // libraries that the user named
	metrics *metrics
	log     *slog.Logger
	changes changes
	side    *sideband // nil where Linux refuses it
	scanner scanner
	scanned schema.KTime  // when the last scan began
	skipped int           // intervals without one
	wake    chan struct{} // something is pending
	allSeen *bool         // see seesAll; nil: not looked at
	told    []uint64      // processes from before, as last told; nil: never
	closing sync.WaitGroup

	mu        sync.Mutex
	libraries []*library
	users     users
	pending   []mapped
	rescan    bool // records were lost
}

func newProbes(tap *bpf.Tap, wanted features, named []string, m *metrics, log *slog.Logger) *probes {
	p := &probes{
		tap: tap, wanted: wanted, named: named, metrics: m, log: log, wake: make(chan struct{}, 1),
		users: newUsers(bootTime()),
	}
	side, err := openSideband(p.apply)
	if err != nil {
		log.Warn("no perf side-band: libraries outside the host's own places are found by scans alone, later",
			"remedy", "run as root or with CAP_PERFMON", "err", err)
		return p
	}
	p.side = side
	m.sideband.Store(1)
	return p
}

// attachHost probes one of the host's own libraries.
func (p *probes) attachHost(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	l, err := p.attach(file, path)
	if l != nil {
		p.mu.Lock()
		l.host = true
		p.mu.Unlock()
	}
	return err
}

// attach probes an open file unless it is already; a file that cannot be probed is tried once. The
// library is nil only where it is not even known which file it is.
func (p *probes) attach(file *os.File, name string) (*library, error) {
	id, err := identify(file)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	if l := p.find(id); l != nil {
		return l, nil
	}
	shown, err := inodeAsMapped(file)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	l := &library{fileIdentity: id, shown: shown}
	l.attachment, err = attach(p.tap, file, id.ino, name, p.wanted)
	p.add(shown, l)
	return l, err
}

// find is the library that is this file; nil when it is new, or has changed since it was refused.
func (p *probes) find(id fileIdentity) *library {
	for {
		p.mu.Lock()
		l := p.is(id)
		open := l == nil || l.closed == nil
		p.mu.Unlock()
		if open {
			return l
		}
		<-l.closed // two sets of probes would tell each call twice
	}
}

// is needs p.mu.
func (p *probes) is(id fileIdentity) *library {
	for _, l := range p.libraries {
		if l.same(id) && (l.attachment != nil || l.changed == id.changed) {
			return l
		}
	}
	return nil
}

// add notes a library under an inode.
func (p *probes) add(id inode, l *library) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users.files[id] = l
	if slices.Contains(p.libraries, l) {
		return
	}
	p.libraries = append(p.libraries, l)
	if l.attachment == nil {
		p.metrics.attachFailed.Add(1)
		return
	}
	l.attached = bootTime()
	p.count(l, 1)
	p.log.Info("library attached", "library", l.library.Path, "probes", l.library.Attached, "stepped", l.library.Stepped,
		"absent", len(l.library.Absent))
}

func (p *probes) count(l *library, sign int64) {
	p.metrics.libraries.Add(sign)
	p.metrics.probes.Add(sign * int64(l.library.Attached))
	p.metrics.stepped.Add(sign * int64(l.library.Stepped))
}

// attachPending deals with the files that records and scans told of.
func (p *probes) attachPending() {
	for {
		p.mu.Lock()
		if len(p.pending) == 0 {
			p.mu.Unlock()
			return
		}
		m := p.pending[0]
		p.mu.Unlock()
		if err := p.attachMapped(m); err != nil && !errors.Is(err, errGone) {
			p.log.Warn("library not attached", "library", m.path, "pid", m.pid, "err", err)
		}
		p.mu.Lock()
		p.pending = p.pending[1:]
		p.mu.Unlock()
		p.changes.lateness(uint32(m.pid))
	}
}

// recognize looks whether files that one process has mapped, and that wait, are attached under another
// inode: a second container's overlay.
func (p *probes) recognize(pid uint32) {
	p.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(p.pending), func(m mapped) bool {
		return m.pid != int(pid) || p.users.files[m.inode] != nil
	})
	p.mu.Unlock()
	for _, m := range list {
		file, err := openMapped(m)
		if err != nil {
			continue // attachMapped says why
		}
		id, err := identify(file)
		file.Close()
		p.mu.Lock()
		if l := p.is(id); err == nil && l != nil && l.closed == nil {
			p.users.files[m.inode] = l
		}
		p.mu.Unlock()
	}
}

func (p *probes) attachMapped(m mapped) error {
	p.mu.Lock()
	known := p.users.files[m.inode] != nil
	p.mu.Unlock()
	if known {
		return nil
	}
	file, err := openMapped(m)
	if errors.Is(err, errGone) {
		return err
	}
	var l *library
	if err == nil {
		defer file.Close()
		l, err = p.attach(file, m.path)
	}
	if l == nil { // said once
		l = &library{fileIdentity: fileIdentity{inode: m.inode}, shown: m.inode}
	}
	p.add(m.inode, l)
	if m.recorded && l.attached > m.at {
		took := time.Duration(l.attached - m.at)
		p.metrics.attachTime.Observe(took.Seconds())
		p.log.Debug("library attached after its mapping", "library", m.path, "pid", m.pid, "took", took)
	}
	return err
}

// followHost attaches what the host's own places hold now, such as an upgraded driver. What they held
// before goes when nobody uses it any more.
func (p *probes) followHost() {
	paths, err := HostLibraries(p.named)
	if err != nil {
		return // a named library is being replaced
	}
	own := map[*library]bool{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		l, err := p.attach(file, path)
		file.Close()
		if err != nil {
			p.log.Warn("library not attached", "library", path, "err", err)
		}
		own[l] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.libraries {
		l.host = own[l]
	}
}

// detachUnused takes the probes out of libraries that nobody has mapped for a while.
func (p *probes) detachUnused(now schema.KTime) {
	if len(p.unused(now, false)) == 0 {
		return
	}
	p.scanAll() // records may have been lost
	for _, l := range p.unused(now, true) {
		p.closing.Go(func() { p.remove(l) })
	}
}

// unused lists the libraries that are due; take makes them closing.
func (p *probes) unused(now schema.KTime, take bool) []*library {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.users.used()
	var due []*library
	for _, l := range p.libraries {
		switch {
		case l.closed != nil:
		case l.host || used[l]:
			l.unused = 0
		case l.unused == 0:
			l.unused = now
		case now >= l.unused+unusedGrace:
			due = append(due, l)
		}
	}
	if take {
		for _, l := range due {
			l.closed = make(chan struct{})
			p.users.forget(l)
		}
	}
	return due
}

// remove detaches one library; Linux takes a tenth of a second over it.
func (p *probes) remove(l *library) {
	if l.attachment != nil {
		l.close()
	}
	p.mu.Lock()
	p.libraries = slices.DeleteFunc(p.libraries, func(other *library) bool { return other == l })
	p.mu.Unlock()
	if l.attachment != nil {
		p.count(l, -1)
		p.log.Info("library detached: no process has it mapped", "library", l.library.Path)
	}
	close(l.closed)
}

// list is what is attached, for the heartbeat.
func (p *probes) list() []schema.Library {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []schema.Library
	for _, l := range p.libraries {
		if l.attachment != nil && l.closed == nil {
			list = append(list, l.library)
		}
	}
	return list
}

// detach takes every probe out; run must have ended.
func (p *probes) detach() {
	p.closing.Wait()
	var group sync.WaitGroup
	for _, l := range p.libraries {
		if l.attachment != nil {
			group.Go(l.close)
		}
	}
	group.Wait()
	p.libraries = nil
}

// close ends it; what the reader asks until then is answered.
func (p *probes) close() {
	p.detach()
	if p.side != nil {
		p.side.close()
		p.side = nil
	}
}

// run looks for libraries at each interval and as records tell, until ctx ends.
func (p *probes) run(ctx context.Context, interval time.Duration) {
	var group sync.WaitGroup
	defer group.Wait()
	if p.side != nil {
		group.Go(func() { p.side.run(ctx, interval, p.sideFailed) })
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.wake:
			p.woken()
		case <-tick.C:
			p.step(bootTime())
		case <-ctx.Done():
			return
		}
	}
}

// symbolAt is the exported function at an offset of an attached library; see addresses. What is not probed
// because nobody wants it counts as probed.
func (p *probes) symbolAt(file inode, offset uint64) (symbol string, probed, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.users.files[file]
	if l == nil || l.attachment == nil {
		return "", false, false
	}
	symbol = l.names[offset]
	return symbol, l.probed[symbol] || p.wanted.leavesOut(symbol), true
}
