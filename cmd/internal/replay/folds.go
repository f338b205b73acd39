package replay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// folds are the folds of all shards of a recording.
type folds struct {
	sets    []*fold.Set
	replays map[int][]*consumer.Replay // of each shard, in the order of its set
	number  int                        // of the folds of one shard
	live    bool                       // questions see the messages as if they came now
}

// newFolds returns folds that begin with the state at the beginning of a file. create makes those of one shard.
func newFolds(f *File, create func() []fold.Fold, log *slog.Logger) (*folds, error) {
	all := &folds{replays: map[int][]*consumer.Replay{}}
	for i := range f.streams {
		all.addShard(&f.streams[i], append(create(), coverage.New()), log)
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

// addShard adds the folds of a shard. Its recording has all batches if it begins with the first message of the stream,
// and no earlier shard had its hosts. A later beginning lacks no memory events if its state is complete.
func (f *folds) addShard(s *recording.Stream, list []fold.Fold, log *slog.Logger) {
	set := &fold.Set{Shard: len(f.sets)} // questions name shards from 0 on, as the topology does
	for _, one := range list {
		begins := s.State == recording.KnowledgeComplete && s.After == 0
		hasState := s.State == recording.KnowledgeComplete && one.Name() == fold.Leak.Name()
		r := consumer.NewReplay(s.Shard, one, begins || hasState, log)
		if !begins && hasState {
			tracker := leak.New(leak.Config{})
			r.WholeFor(append(tracker.Kinds(), schema.KindHost)...)
		}
		set.Add(one, r.Reader())
		f.replays[s.Shard] = append(f.replays[s.Shard], r)
	}
	f.sets, f.number = append(f.sets, set), len(list)
}

// restore loads a section into the fold that saved it. Other folds begin empty.
func (f *folds) restore(s recording.Section) error {
	for _, r := range f.replays[s.Shard] {
		if r.Fold().Name() == s.Fold {
			return r.Restore(s)
		}
	}
	return nil
}

// apply applies messages to all folds, and returns when all of them are done.
func (f *folds) apply(messages []recording.Message) error {
	var group sync.WaitGroup
	for i := range f.number {
		group.Go(func() {
			for m := range messages {
				m := &messages[m]
				if list := f.replays[m.Shard]; list != nil {
					list[i].Apply(m)
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
func (f *folds) snapshot(at time.Time, file *File) *answer.Snapshot {
	s := answer.New(at)
	s.Watches(file.watched())
	for _, set := range f.sets {
		set.AddTo(s)
	}
	s.Sort()
	return s
}

// lost returns the lost events by cause: see answer.Lost.
func (f *folds) lost() map[string]uint64 {
	sum := map[string]uint64{}
	for _, set := range f.sets {
		for cause, n := range answer.Lost(set.Readers) {
			sum[cause] += n
		}
	}
	return sum
}
