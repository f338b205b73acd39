package job

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

const (
	maxJobs    = 4096
	maxMembers = 65_536 // of all jobs
	maxRanks   = 8192   // of a job
	maxOpen    = 30     // windows of a job: one minute
	leastRanks = 4
	straggler  = "straggler"
)

// Config configures a Fold. The zero Config raises no alert.
type Config struct {
	Severity string                   // of alerts; "": none is raised
	Cooldown time.Duration            // after an alert cleared, how long an equal finding raises none
	Excluded func(*process.Info) bool // processes about which no alert is raised; nil: none
	OnAlert  func(alert.Alert)        // is called with every alert that fires or clears, in order; nil: not called
}

// Fold compares the ranks of jobs.
type Fold struct {
	cfg Config

	mu      sync.Mutex
	jobs    map[snapshot.HostID]*job
	members int
	ignored uint64 // ranks above the limits, in batches
	book    *alert.Book

	judge judge
	out   snapshot.Writer
}

// job is the state of one job.
type job struct {
	id      snapshot.HostID
	ranks   uint32 // expected; 0: unknown
	members map[uint32]*member
	clocks
	open    []*window // by number
	missing []uint32  // ranks that the last closed window lacked
	waiting float64   // share of the time that the median rank waited in the last judged window
	scales  [numScales]scale
	firing  []*suspect
}

// member is the process of one rank.
type member struct {
	process.Info         // its host is where it runs
	waiting      float64 // share of the time in the last judged window
}

// window is one window that is not closed. cells are by rank.
type window struct {
	number int64
	cells  map[uint32]*cell
}

// cell is one rank in one window.
type cell struct {
	id       schema.ProcessID
	number   int64 // of the window by the clock of its host
	launches uint64
	run, seq uint64 // of its batch
	waits    []wait
}

// wait is the time of one rank at one place.
type wait struct {
	place place
	share float64 // of the window
}

// New returns an empty Fold.
func New(cfg Config) *Fold {
	return &Fold{cfg: cfg, jobs: map[snapshot.HostID]*job{},
		book: alert.NewBook(alert.Config{Family: "anomaly", Cooldown: cfg.Cooldown})}
}

// Name returns the fold's name.
func (f *Fold) Name() string { return "job" }

// Kinds returns the kinds of batches that the fold needs.
func (f *Fold) Kinds() []schema.Kind { return []schema.Kind{schema.KindRank} }

// Apply folds one batch. It does not keep b. It always returns nil.
func (f *Fold) Apply(b *schema.Batch) error {
	if b.Kind != schema.KindRank || b.Events == 0 {
		return nil
	}
	f.mu.Lock()
	f.fold(b)
	changes := f.book.Changes()
	f.mu.Unlock()
	f.deliver(changes)
	return nil
}

func (f *Fold) fold(b *schema.Batch) {
	id := snapshot.HostID{Cluster: b.Cluster, Host: b.Host}
	j := f.jobs[id]
	if j == nil {
		if len(f.jobs) >= maxJobs {
			f.ignored += uint64(len(b.Processes))
			return
		}
		j = newJob(id)
		f.jobs[id] = j
	}
	shift, again := j.place(b, j.members)
	if again != nil {
		f.restart(j, b.Wall(again.Start))
	}
	var c *cell
	for i := range b.Events {
		e := b.Rank(i)
		row := &b.Processes[b.Threads[e.Thread].Process]
		switch {
		case row.Rank == 0 || row.Rank > maxRanks:
			f.ignored++
		case e.From == schema.NoActivity && e.To == schema.NoActivity:
			f.leave(j, b, row, e.Time)
		case e.From == schema.NoActivity && e.To == schema.Launching: // the first row of a window
			c = f.begin(j, b, row, &e, shift)
		case c != nil:
			c.add(&e)
		}
	}
	f.close(j)
	j.trim(2*max(int(j.ranks), len(j.members)), j.members) // room for processes that take over from all members
	if len(j.members) == 0 {
		delete(f.jobs, id)
	}
}

func newJob(id snapshot.HostID) *job {
	return &job{id: id, members: map[uint32]*member{}, scales: newScales(),
		clocks: clocks{shifts: map[boot]int64{}}}
}

// idOf returns the identity of a process of a batch. It runs on the origin.
func idOf(b *schema.Batch, row *schema.Process) schema.ProcessID {
	id := b.ID(row)
	id.Host = b.Origin
	return id
}

// begin returns the empty cell of a rank in a window; nil if there is a better one, or the window is closed. Several
// processes of one rank may use CUDA: the one that launches most counts. It becomes the member with the next window,
// because the member may still send this one.
func (f *Fold) begin(j *job, b *schema.Batch, row *schema.Process, e *schema.Rank, shift int64) *cell {
	own := numberOf(b, e.Time)
	if own+shift < j.next {
		return nil
	}
	w := j.window(own + shift)
	id, c := idOf(b, row), w.cells[row.Rank-1]
	if c != nil && c.launches >= e.Count {
		return nil
	}
	m := j.members[row.Rank-1]
	joins := m == nil || m.ID == id || j.before(w.number, row.Rank-1) == id
	if joins && !f.join(j, b, row, id) {
		return nil
	}
	c = &cell{id: id, number: own, launches: e.Count, run: b.Run, seq: b.Seq}
	w.cells[row.Rank-1] = c
	return c
}

// before returns the process that counts for a rank in the last window of it before another one.
func (j *job) before(number int64, rank uint32) schema.ProcessID {
	for _, w := range slices.Backward(j.open) {
		if c := w.cells[rank]; c != nil && w.number < number {
			return c.id
		}
	}
	if c := j.scales[numScales-1].sum.cells[rank]; c != nil {
		return c.id // of the last closed window
	}
	return schema.ProcessID{}
}

// window returns an open window.
func (j *job) window(number int64) *window {
	i, found := slices.BinarySearchFunc(j.open, number, func(w *window, n int64) int {
		return cmp.Compare(w.number, n)
	})
	if !found {
		j.open = slices.Insert(j.open, i, &window{number: number, cells: map[uint32]*cell{}})
	}
	return j.open[i]
}

// join makes a process the member of its rank. It returns false above the limit.
func (f *Fold) join(j *job, b *schema.Batch, row *schema.Process, id schema.ProcessID) bool {
	m := j.members[row.Rank-1]
	switch {
	case m == nil && f.members >= maxMembers:
		f.ignored++
		return false
	case m == nil:
		m = &member{}
		j.members[row.Rank-1] = m
		f.members++
	case m.ID != id:
		f.replace(j, row.Rank-1, b.Wall(b.Last), "another process has the rank now")
	}
	waiting := m.waiting
	*m = member{process.NewInfo(b, row), waiting}
	m.ID = id
	if j.ranks = row.Ranks; j.ranks > maxRanks {
		j.ranks = 0
	}
	f.shrink(j, b.Wall(b.Last))
	return true
}

// leave removes the process of a rank that has ended.
func (f *Fold) leave(j *job, b *schema.Batch, row *schema.Process, at schema.KTime) {
	rank := row.Rank - 1
	if m := j.members[rank]; m != nil && m.ID == idOf(b, row) {
		f.replace(j, rank, b.Wall(at), "the process ended")
		delete(j.members, rank)
		f.members--
	}
}

// close closes the windows that all ranks have sent, those before them, and the oldest above the limit.
func (f *Fold) close(j *job) {
	for n := len(j.open); n > 0; n-- {
		if w := j.open[n-1]; j.ranks == 0 || len(w.cells) < int(j.ranks) {
			continue
		}
		for range n {
			f.closeFirst(j)
		}
		break
	}
	for len(j.open) > 0 && j.open[len(j.open)-1].number-j.open[0].number >= maxOpen {
		f.closeFirst(j)
	}
}

// closeFirst closes the oldest open window, and judges it if no rank is missing.
func (f *Fold) closeFirst(j *job) {
	w := j.open[0]
	j.open = slices.Delete(j.open, 0, 1)
	j.next, j.missing = w.number+1, nil
	for rank := range j.ranks {
		if w.cells[rank] == nil {
			j.missing = append(j.missing, rank)
		}
	}
	if j.ranks > 0 && len(j.missing) == 0 {
		f.compare(j, w)
	}
}

// Forget removes a job.
func (f *Fold) Forget(cluster, name string) {
	f.mu.Lock()
	id := snapshot.HostID{Cluster: cluster, Host: name}
	if j := f.jobs[id]; j != nil {
		f.members -= len(j.members)
		delete(f.jobs, id)
	}
	f.book.Forget(id)
	changes := f.book.Changes()
	f.mu.Unlock()
	f.deliver(changes)
}

func (f *Fold) deliver(changes []alert.Alert) {
	if f.cfg.OnAlert == nil {
		return
	}
	for i := range changes {
		f.cfg.OnAlert(changes[i])
	}
}

// Alerts returns the alerts that fire and the 1,000 that cleared last, oldest first.
func (f *Fold) Alerts() []alert.Alert {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.book.Alerts()
}
