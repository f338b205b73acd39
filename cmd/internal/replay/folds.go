package replay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// folds are the folds of all lanes of a recording.
type folds struct {
	hosts   *moved.Hosts
	sets    []*fold.Set
	replays map[*moved.Lane][]*consumer.Replay // of each lane, in the order of its set
	number  int                                // of the folds of one lane
	live    bool                               // questions see the messages as if they came now

	lanes  []*moved.Lane       // of the messages at hand
	routed []recording.Message // as the lanes have them
}

// newFolds returns folds that begin with the state at the beginning of a file. create makes those of one lane.
func newFolds(f *File, create func() []fold.Fold, log *slog.Logger) (*folds, error) {
	all := &folds{hosts: f.hosts, replays: map[*moved.Lane][]*consumer.Replay{}}
	inherits := f.hosts.Inherits(f.sections())
	for _, lane := range f.hosts.Lanes(f.streams) {
		all.addLane(lane, !inherits[lane.Stream.Shard], append(create(), coverage.New()), log)
	}
	for s, err := range f.sections() {
		if err != nil {
			return nil, err
		}
		if err := all.restore(s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addLane adds the folds of a lane. Its recording has all batches if it begins with the first message of the stream,
// and if own says that no earlier shard had its hosts. A later beginning lacks no memory events if its state is
// complete.
func (f *folds) addLane(lane *moved.Lane, own bool, list []fold.Fold, log *slog.Logger) {
	s, set := &lane.Stream, &fold.Set{Shard: len(f.sets)} // questions name shards from 0 on, as the topology does
	for _, one := range list {
		begins := own && s.State == recording.KnowledgeComplete && s.After == 0
		hasState := s.State == recording.KnowledgeComplete && one.Name() == fold.Leak.Name()
		r := consumer.NewReplay(lane.Shard(), one, begins || hasState, log)
		if !begins && hasState {
			tracker := leak.New(leak.Config{})
			r.WholeFor(append(tracker.Kinds(), schema.KindHost)...)
		}
		set.Add(one, r.Reader())
		f.replays[lane] = append(f.replays[lane], r)
	}
	f.sets, f.number = append(f.sets, set), len(list)
}

// restore loads a section into the fold that saved it. Other folds begin empty.
func (f *folds) restore(s recording.Section) error {
	lane, s := f.hosts.OfSection(&s)
	for _, r := range f.replays[lane] { // none, if an earlier shard has the host
		if r.Fold().Name() == s.Fold {
			return r.Restore(s)
		}
	}
	return nil
}

// apply applies messages to all folds, and returns when all of them are done.
func (f *folds) apply(messages []recording.Message) error {
	f.lanes, f.routed = f.lanes[:0], f.routed[:0]
	for i := range messages {
		lane, one := f.hosts.Of(&messages[i])
		f.lanes, f.routed = append(f.lanes, lane), append(f.routed, one)
	}
	var group sync.WaitGroup
	for i := range f.number {
		group.Go(func() {
			for m := range f.routed {
				if list := f.replays[f.lanes[m]]; list != nil {
					list[i].Apply(&f.routed[m])
				}
			}
		})
	}
	group.Wait()
	if last := messages[len(messages)-1].Stored; f.live {
		f.showHeard(time.Since(last))
	}
	return nil
}

// showHeard shows the times of the messages later than they are.
func (f *folds) showHeard(by time.Duration) {
	for _, list := range f.replays {
		for _, r := range list {
			r.ShowHeard(by)
		}
	}
}

// snapshot reads the folds after the replay of a file. at is its time.
func (f *folds) snapshot(at time.Time, file *File) *report.Snapshot {
	s := report.New(at)
	s.Watches(file.watched())
	for _, set := range f.sets {
		set.AddTo(s)
	}
	s.Sort()
	return s
}

// lost returns the lost events by cause: see report.Lost.
func (f *folds) lost() map[string]uint64 {
	sum := map[string]uint64{}
	for _, set := range f.sets {
		for cause, n := range report.Lost(set.Readers) {
			sum[cause] += n
		}
	}
	return sum
}
