package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/schema"
)

const (
	// unusedGrace is how long a library stays attached after its last process: short programs often come in series.
	unusedGrace = schema.KTime(10 * time.Second)
	// leaveGrace is longer than the reader takes to see a process's first call.
	leaveGrace = schema.KTime(time.Second)
	// scanEvery is the number of intervals between scans while side-band records report mappings sooner.
	scanEvery = 30
	// maxPending bounds the mappings that wait for an attach; a scan finds those beyond it.
	maxPending = 1024
)

// attached is a driver library file that was found: probed, or refused if attachment is nil.
type attached struct {
	*attachment
	library.File
	shown  library.Inode // as maps and side-band records show it
	host   bool          // one of the host's own: attached whether mapped or not
	since  schema.KTime  // when the last of its probes was attached
	unused schema.KTime  // since when nobody has it mapped; 0: somebody has
	closed chan struct{} // closed when the library was detached; nil until detaching begins
}

// pending is a mapping that waits for an attach. Its times are those of use.
type pending struct {
	library.Mapping
	at, noted schema.KTime
}

// Probes are the attached libraries.
type Probes struct {
	tap      *bpf.Tap
	wanted   Features
	named    []string // libraries that the user named
	metrics  *metrics
	log      *slog.Logger
	side     *sideband // nil where Linux refuses it
	scanner  library.Scanner
	scanned  schema.KTime  // when the last scan began
	skipped  int           // intervals since the last scan
	wake     chan struct{} // something is pending
	reported []uint64      // older processes as last reported; nil: never
	closing  sync.WaitGroup

	mu        sync.Mutex
	libraries []*attached
	users     users
	pending   []pending
	rescan    bool // side-band records were lost
	changes   Changes
}

// New opens the side-band. Nothing is attached yet. named are the libraries that the user named.
func New(tap *bpf.Tap, wanted Features, named []string, log *slog.Logger) *Probes {
	p := &Probes{
		tap: tap, wanted: wanted, named: named, metrics: newMetrics(), log: log, wake: make(chan struct{}, 1),
		users: newUsers(bootTime()),
	}
	side, err := openSideband(p.apply)
	if err != nil {
		log.Warn("no perf side-band; libraries outside the host's own places are found later, by scans",
			"remedy", "run as root or with CAP_PERFMON", "err", err)
		return p
	}
	p.side = side
	p.metrics.sideband.Set(1)
	return p
}

// AttachHost probes one of the host's own libraries.
func (p *Probes) AttachHost(path string) error {
	_, err := p.attachPath(path)
	return err
}

func (p *Probes) attachPath(path string) (*attached, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return p.attach(file, path)
}

// Start attaches the libraries that running processes have mapped already. It returns the number of attached libraries.
func (p *Probes) Start() int {
	p.scan(false)
	p.attachPending()
	p.reportOlder()
	return len(p.Libraries())
}

// attach probes an open file, unless it is attached already. It tries a file that cannot be probed once. The library is
// nil only if the file cannot be identified.
func (p *Probes) attach(file *os.File, name string) (*attached, error) {
	id, err := library.Identify(file)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	if l := p.find(id); l != nil {
		return l, nil
	}
	shown, err := library.InodeAsMapped(file)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	l := &attached{File: id, shown: shown}
	l.attachment, err = attachFile(p.tap, file, id.Ino, name, p.wanted)
	p.add(shown, l)
	return l, err
}

// find returns the library of a file; nil when it is new, or changed after it was refused.
func (p *Probes) find(id library.File) *attached {
	for {
		p.mu.Lock()
		l := p.lookup(id)
		p.mu.Unlock()
		if l == nil || l.closed == nil {
			return l
		}
		<-l.closed // two sets of probes would record each call twice
	}
}

// lookup needs p.mu.
func (p *Probes) lookup(id library.File) *attached {
	for _, l := range p.libraries {
		if l.Same(id) && (l.attachment != nil || l.Changed == id.Changed) {
			return l
		}
	}
	return nil
}

// add notes a library under an inode.
func (p *Probes) add(id library.Inode, l *attached) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users.files[id] = l
	if slices.Contains(p.libraries, l) {
		return
	}
	p.libraries = append(p.libraries, l)
	if l.attachment == nil {
		p.metrics.attachFailed.Inc()
		return
	}
	l.since = bootTime()
	p.count(l, 1)
	if l.library.Attached == 0 {
		p.log.Warn("library has none of the functions to probe", "library", l.library.Path, "absent", l.library.Absent)
		return
	}
	p.log.Info("library attached", "library", l.library.Path, "probes", l.library.Attached,
		"stepped", l.library.Stepped, "absent", len(l.library.Absent))
}

func (p *Probes) count(l *attached, sign float64) {
	p.metrics.libraries.Add(sign)
	p.metrics.probes.Add(sign * float64(l.library.Attached))
	p.metrics.stepped.Add(sign * float64(l.library.Stepped))
}

// attachPending attaches the pending files.
func (p *Probes) attachPending() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.pending) > 0 {
		m := p.pending[0]
		if p.users.files[m.Inode] == nil {
			p.mu.Unlock()
			p.attachMapped(m)
			p.mu.Lock()
		}
		p.pending = p.pending[1:]
		note(&p.changes.Late, m.PID, true)
	}
}

// recognize checks the pending mappings of one process: a file may be attached already under another inode, as in a
// second container's overlay.
func (p *Probes) recognize(pid uint32) {
	p.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(p.pending), func(m pending) bool {
		return m.PID != pid || p.users.files[m.Inode] != nil
	})
	p.mu.Unlock()
	for _, m := range list {
		file, err := m.Open()
		if err != nil {
			continue // attachMapped reports it
		}
		id, err := library.Identify(file)
		file.Close()
		p.mu.Lock()
		if l := p.lookup(id); err == nil && l != nil && l.closed == nil {
			p.users.files[m.Inode] = l
		}
		p.mu.Unlock()
	}
}

func (p *Probes) attachMapped(m pending) {
	file, err := m.Open()
	if errors.Is(err, library.ErrUnmapped) {
		return
	}
	var l *attached
	if err == nil {
		defer file.Close()
		l, err = p.attach(file, m.Path)
	}
	if err != nil {
		p.log.Warn("library not attached", "library", m.Path, "pid", m.PID, "err", err)
	}
	if l == nil { // remembered as refused, so that it is reported once
		l = &attached{File: library.File{Inode: m.Inode}, shown: m.Inode}
	}
	p.add(m.Inode, l)
	if m.noted == 0 && l.since > m.at {
		took := time.Duration(l.since - m.at)
		p.metrics.attachTime.Observe(took.Seconds())
		p.log.Debug("library attached after its mapping", "library", m.Path, "pid", m.PID, "took", took)
	}
}

// followHost attaches the present files in the host's own places, such as an upgraded driver. The earlier library is
// detached when nobody uses it any more.
func (p *Probes) followHost() {
	paths, err := library.OnHost(p.named)
	if err != nil {
		return // a named library is being replaced
	}
	own := map[*attached]bool{}
	for _, path := range paths {
		l, err := p.attachPath(path)
		if l != nil && err != nil {
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

// detachUnused detaches libraries that nobody has had mapped for a while.
func (p *Probes) detachUnused(now schema.KTime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unused(now)) == 0 {
		return
	}
	p.mu.Unlock()
	p.scan(true) // side-band records may have been lost
	p.mu.Lock()
	for _, l := range p.unused(now) {
		l.closed = make(chan struct{})
		p.users.remove(l)
		p.closing.Go(func() { p.remove(l) })
	}
}

// unused lists the libraries to detach; p.mu is held.
func (p *Probes) unused(now schema.KTime) (due []*attached) {
	used := p.users.used()
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
	return due
}

// remove detaches one library, which takes Linux a tenth of a second.
func (p *Probes) remove(l *attached) {
	if l.attachment != nil {
		l.close()
	}
	p.mu.Lock()
	p.libraries = slices.DeleteFunc(p.libraries, func(other *attached) bool { return other == l })
	p.mu.Unlock()
	if l.attachment != nil {
		p.count(l, -1)
		p.log.Info("library detached: no process has it mapped", "library", l.library.Path)
	}
	close(l.closed)
}

// Libraries lists the attached libraries.
func (p *Probes) Libraries() []schema.Library {
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

// Detach removes every probe. Run must have returned.
func (p *Probes) Detach() {
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

// Close detaches and closes the side-band. Run must have returned.
func (p *Probes) Close() {
	p.Detach()
	if p.side != nil {
		p.side.close()
		p.side = nil
	}
}

// Run attaches and detaches until ctx ends: when side-band records arrive, and at each interval.
func (p *Probes) Run(ctx context.Context, interval time.Duration) {
	var group sync.WaitGroup
	defer group.Wait()
	if p.side != nil {
		group.Go(func() { p.side.run(ctx, interval, p.sidebandChanged) })
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.wake:
			p.stepWoken()
		case <-tick.C:
			p.step(bootTime())
		case <-ctx.Done():
			return
		}
	}
}

// bootTime returns the present time of the records' clock.
func bootTime() schema.KTime {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it exists on every Linux that loads the programs
	return schema.KTime(ts.Nano())
}
