package rank

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const (
	maxProcesses = 2048
	maxDrift     = int64(100 * time.Millisecond) // of a host's offset
)

// Summary is one batch of kind rank.
type Summary struct {
	Cluster, Job string
	Message      []byte
}

// Config configures a Fold.
type Config struct {
	Publish func(Summary) // nil: summaries are dropped
}

// Fold sums up the ranks of jobs.
type Fold struct {
	publish func(Summary)

	mu        sync.Mutex
	hosts     map[snapshot.HostID]*host
	processes int
	counters  counters

	pages   []*page // not in use
	rows    []*proc // of the batch, by thread; nil: not a rank
	doing   []doing // of the batch, by call or launch shape
	columns struct{ times, threads, calls, durations, bytes []uint64 }
	builder *schema.Builder
	out     snapshot.Writer
}

// counters are sums over all hosts.
type counters struct{ summarized, incomplete, ignored uint64 }

// host is one boot of a host with ranks.
type host struct {
	boot   string
	offset int64 // of the windows: wall clock minus boot time
	run    uint64
	lost   [schema.NumLosses]uint64
	missed bool         // batches before the next one are missing
	latest schema.KTime // of all events
	frozen schema.KTime // events were lost up to here
	next   window       // that closes next
	done   uint64       // first bin of next: what lies before is closed
	jobs   map[string]*numbering
	procs  map[procID]*proc
}

// numbering numbers the summaries of a job on a host.
type numbering struct {
	run schema.KTime // start of the first window
	seq uint64
}

type procID struct {
	pid   uint32
	start schema.KTime
}

// New returns an empty Fold.
func New(cfg Config) *Fold {
	return &Fold{publish: cfg.Publish, hosts: map[snapshot.HostID]*host{},
		builder: schema.NewBuilder(schema.KindRank)}
}

// Name returns the fold's name.
func (f *Fold) Name() string { return "rank" }

// Kinds returns the kinds of batches that the fold needs.
func (f *Fold) Kinds() []schema.Kind {
	return []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync, schema.KindHost}
}

// Apply folds one batch. One goroutine at a time calls it, in seq order per host and kind. Apply does not keep b. It
// always returns nil.
func (f *Fold) Apply(b *schema.Batch) error {
	if b.Kind > schema.KindHost {
		return nil
	}
	id := snapshot.HostID{Cluster: b.Cluster, Host: b.Host}
	ranked := slices.ContainsFunc(b.Processes, isRank)
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[id]
	switch {
	case h == nil && (!ranked || b.Events == 0):
		return nil
	case h == nil:
		h = &host{}
		f.hosts[id] = h
	}
	if !f.sees(h, b) || !ranked || b.Events == 0 {
		return nil
	}
	f.threads(h, b)
	f.fold(h, b)
	return nil
}

func isRank(p schema.Process) bool { return p.Job != "" && p.Rank > 0 }

// sees takes note of a batch before its events. It returns false for a batch of an earlier boot, which does not count.
func (f *Fold) sees(h *host, b *schema.Batch) bool {
	if h.boot != b.BootID {
		if h.boot != "" && b.ClockOffset < h.offset {
			return false
		}
		f.empty(h)
		*h = host{boot: b.BootID, offset: b.ClockOffset, run: b.Run, lost: b.Lost, procs: map[procID]*proc{},
			jobs: map[string]*numbering{}}
		h.goTo(h.windowOf(b.First))
	}
	if b.Events > 0 {
		h.latest = max(h.latest, b.Last)
	}
	if drift := b.ClockOffset - h.offset; drift > maxDrift || drift < -maxDrift {
		f.moveClock(h, b.ClockOffset)
	}
	switch {
	case b.Run > h.run: // calls between two runs of the producer were not seen
		h.run, h.lost = b.Run, b.Lost
		h.freeze(max(h.latest, schema.KTime(b.Run)))
	case b.Run == h.run && h.loses(&b.Header):
		h.freeze(max(h.latest, b.Through())) // a heartbeat counts what was lost through a time
	}
	if h.missed {
		h.missed = false
		h.freeze(h.latest)
	}
	return true
}

// loses adds the growth of the loss counters, and reports whether there is any. They fall where a batch of another kind
// comes late.
func (h *host) loses(b *schema.Header) (more bool) {
	for cause, n := range b.Lost {
		more = more || n > h.lost[cause]
		h.lost[cause] = max(h.lost[cause], n)
	}
	return more
}

// moveClock drops the open windows of a host.
func (f *Fold) moveClock(h *host, offset int64) {
	h.offset = offset
	h.goTo(h.windowOf(h.latest))
	h.jobs = map[string]*numbering{}
	for _, p := range h.procs {
		f.release(p)
		*p = proc{host: h, row: p.row, from: h.next + 1, silent: p.silent, ended: p.ended}
	}
}

// freeze takes note that events up to t were lost.
func (h *host) freeze(t schema.KTime) { h.frozen = max(h.frozen, t) }

// threads sets the rows of a batch.
func (f *Fold) threads(h *host, b *schema.Batch) {
	f.rows = f.rows[:0]
	for i := range b.Threads {
		var p *proc
		if row := &b.Processes[b.Threads[i].Process]; isRank(*row) {
			p = f.process(h, b, row)
		}
		f.rows = append(f.rows, p)
	}
}

// process returns the state of a rank, or nil above the limit.
func (f *Fold) process(h *host, b *schema.Batch, row *schema.Process) *proc {
	id := procID{row.PID, row.Start}
	p := h.procs[id]
	switch {
	case p != nil:
		if p.row != *row {
			p.row = *row
		}
	case f.processes >= maxProcesses:
		f.counters.ignored++
	default:
		p = &proc{host: h, row: *row, from: h.windowOf(b.First) + 1} // the first window may be incomplete
		h.procs[id] = p
		f.processes++
	}
	return p
}

// sorted returns the processes of a host by job, rank, pid and start.
func (h *host) sorted() []*proc {
	all := make([]*proc, 0, len(h.procs))
	for _, p := range h.procs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *proc) int {
		return cmp.Or(cmp.Compare(a.row.Job, b.row.Job), cmp.Compare(a.row.Rank, b.row.Rank),
			cmp.Compare(a.row.PID, b.row.PID), cmp.Compare(a.row.Start, b.row.Start))
	})
	return all
}

// Lost takes note of batches of a host that the fold will never see.
func (f *Fold) Lost(cluster, host, _ string, _ uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.hosts[snapshot.HostID{Cluster: cluster, Host: host}]; h != nil {
		h.missed = true
		h.freeze(h.latest)
	}
}

// Forget removes a host.
func (f *Fold) Forget(cluster, host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := snapshot.HostID{Cluster: cluster, Host: host}
	if h := f.hosts[id]; h != nil {
		f.empty(h)
		delete(f.hosts, id)
	}
}

func (f *Fold) empty(h *host) {
	for _, p := range h.procs {
		f.remove(p)
	}
}

func (f *Fold) remove(p *proc) {
	f.release(p)
	delete(p.host.procs, procID{p.row.PID, p.row.Start})
	f.processes--
}
