package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
)

const (
	stateName     = "state"
	maxStateBytes = 1 << 20 // a usual one has 300
)

// state is a file beside the segments: JSON and its checksum. It may be older than the segments: then batches are sent
// again. After a power cut it may be newer: therefore a number of a segment is never used again.
type state struct {
	Next  uint64            // number of the next segment
	Acked map[string]acked  // by kind
	Runs  map[string]losses // of the run that wrote it, and of earlier ones with batches in the outbox

	corrupt uint64 // 1 if the file was corrupt
}

// acked is a position before which everything is acked.
type acked struct {
	Segment uint64
	position
}

// readState returns errCorrupt for a file that cannot be trusted.
func readState(dir *os.Root) (st state, err error) {
	info, err := dir.Lstat(stateName)
	if errors.Is(err, os.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxStateBytes {
		return st, errCorrupt
	}
	text, err := dir.ReadFile(stateName)
	if err != nil {
		return st, err
	}
	body, sum, _ := strings.Cut(string(text), "\n")
	if sum != checksumText([]byte(body))+"\n" || json.Unmarshal([]byte(body), &st) != nil {
		return state{}, errCorrupt
	}
	return st, nil
}

// ackedIn returns the acked position in a segment. If the segment was cut off before it, all the rest was acked.
func (st *state) ackedIn(s *segment) position {
	switch p := st.Acked[s.kind.String()]; {
	case p.Segment != s.number || p.Off < s.begin.Off:
		return s.begin
	case p.Off >= s.end.Off:
		return s.end
	default:
		return p.position
	}
}

// save replaces the file if it would say something else. Then losses of earlier runs become losses of this run. The
// file is synced when losses change, or wait to be reported; else a power cut costs no more than batches sent again.
func (o *Outbox) save() error {
	o.mu.Lock()
	inherited := o.inherited
	st := state{Next: o.next, Acked: map[string]acked{}, Runs: map[string]losses{}}
	for i := range o.queues {
		if q := &o.queues[i]; len(q.segments) > 0 {
			st.Acked[q.segments[0].kind.String()] = acked{q.segments[0].number, q.acked}
		}
	}
	unreported := false
	for id, r := range o.runs {
		l := r.losses
		if id == o.opts.Run {
			l.Lost = o.opts.Lost.Load() + inherited
		}
		st.Runs[id] = l
		unreported = unreported || l.unreported() > 0
	}
	o.mu.Unlock()
	was := o.disk.saved
	if reflect.DeepEqual(&st, was) && len(o.disk.unended) == 0 {
		return nil
	}
	text, _ := json.Marshal(st)
	sync := was == nil || unreported || !reflect.DeepEqual(st.Runs, was.Runs)
	if err := o.disk.replace(stateName, fmt.Appendf(text, "\n%s\n", checksumText(text)), sync); err != nil {
		return err
	}
	o.disk.saved = &st
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inherited -= inherited
	o.opts.Lost.Add(inherited)
	var errs []error
	for _, s := range o.disk.unended { // their losses are stored now
		errs = append(errs, s.close())
	}
	o.disk.unended = nil
	return errors.Join(errs...)
}

func checksumText(body []byte) string { return fmt.Sprintf("%08x", checksum(body)) }

func (w *writer) replace(name string, text []byte, sync bool) error {
	f, err := w.create(name + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := w.root.Rename(name+".new", name); err != nil || !sync {
		return err
	}
	return w.dir.Sync()
}
