package outbox

import (
	"errors"
	"os"
	"slices"

	"github.com/gputap/gputap/schema"
)

const stateName = "state"

// state is a file beside the segments: a record whose data is JSON. It may be older than the segments: then batches are
// sent again.
type state struct {
	Run        uint64 // that wrote it
	Acked, End [schema.NumKinds]position
	Lost       uint64 // events that the run lost
	Unreported uint64 // of these and of those that earlier runs lost: no acked batch reports them
	Reporting  uint64 // the run whose batch was acked last
	Reported   uint64 // the greatest Lost of its acked batches
}

// readState returns errCorrupt for a file that cannot be trusted.
func readState(root *os.Root) (st state, err error) {
	f, err := openFile(root, stateName)
	if errors.Is(err, os.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	defer f.Close()
	if _, err := readJSON(f, &st); err != nil {
		return state{}, err
	}
	return st, nil
}

// save replaces the file if it would say something else. Once no batch of an earlier run is left, the losses that none
// of them reported become losses of this run. The file is synced when it has losses to be reported; else a power cut
// costs no more than batches sent again.
func (o *Outbox) save() (err error) {
	o.mu.Lock()
	st := state{Run: o.run, Reporting: o.reporting, Reported: o.reported, Lost: o.opts.Lost.Load()}
	for i := range o.queues {
		st.Acked[i], st.End[i] = o.queues[i].acked, o.queues[i].end()
	}
	st.Unreported = o.unreported + st.Lost
	if o.reporting == o.run {
		st.Unreported -= min(st.Unreported, o.reported)
	}
	inherited := uint64(0)
	if o.oldestRun() >= o.run {
		inherited = o.unreported
	}
	st.Lost += inherited
	o.mu.Unlock()
	if was := o.saved; was == nil || *was != st {
		err = o.write(&st, was == nil || was.Unreported+st.Unreported > 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // in a removed directory nobody will read it
			return err
		}
		o.saved = &st
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unreported -= inherited
	o.opts.Lost.Add(inherited)
	return err
}

func (o *Outbox) write(st *state, sync bool) error {
	f, err := o.root.OpenFile(stateName+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = writeJSON(f, st)
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil {
		err = o.root.Rename(stateName+".new", stateName)
	}
	if err == nil && sync {
		err = o.dir.Sync()
	}
	return err
}

// restore makes the queues from the state and the segments of earlier runs.
func (o *Outbox) restore() error {
	st, err := readState(o.root)
	corrupt := uint64(0)
	if errors.Is(err, errCorrupt) {
		corrupt++
		o.opts.Log.Warn("outbox state is corrupt; acked batches may be sent again, earlier losses may not be reported",
			"dir", o.opts.Dir)
	} else if err != nil { // it may be readable later, and must not be replaced
		return err
	}
	names, err := o.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	var queues [schema.NumKinds]queue
	var trash []*segment
	run, lost := st.Run, st.Lost
	for _, name := range slices.Backward(names) {
		s := parseName(name)
		if s == nil {
			continue
		}
		q, next := &queues[s.kind], (*segment)(nil)
		if len(q.segments) > 0 {
			next = q.segments[0]
		}
		err := s.load(o.root, next)
		if err != nil && !errors.Is(err, errCorrupt) {
			return err
		}
		if run = max(run, s.run()); err != nil {
			if trash = append(trash, s); s.bytes >= headBytes { // a smaller one is of a crash before its first batch
				corrupt++
				o.opts.Log.Warn("outbox segment is corrupt; its batches are lost", "dir", o.opts.Dir, "segment", name)
			}
			continue
		}
		q.segments = slices.Insert(q.segments, 0, s)
		if s.run() == st.Run {
			lost = max(lost, s.Lost)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.run, o.queues, o.trash, o.corrupt = run+1, queues, trash, o.corrupt+corrupt
	o.unreported, o.reporting, o.reported = st.Unreported+lost-st.Lost, st.Reporting, st.Reported
	for kind := range o.queues {
		q := &o.queues[kind]
		q.acked = st.Acked[kind]
		missing := q.startAt(st.End[kind])
		if st.Run > 0 {
			o.unreported += missing
		}
		o.advance(q, q.acked)
	}
	for o.bytes() > o.opts.MaxBytes && o.evict(len(DropOrder)) { // the limit was lowered
	}
	return nil
}

// startAt moves acked to the first segment, and returns how many events before it are neither acked nor in a file. The
// state tells the end of the log, unless batches were appended after it.
func (q *queue) startAt(end position) (missing uint64) {
	first := end
	if n := len(q.segments); n > 0 {
		last := &q.segments[n-1].end
		last.Batches, last.Events = max(last.Batches, end.Batches), max(last.Events, end.Events)
		first = q.segments[0].begin
	}
	if first.Batches > q.acked.Batches {
		_, missing = q.left(first)
		q.acked = first
	}
	return missing
}
