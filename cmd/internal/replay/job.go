package replay

import (
	"log/slog"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema/recording"
)

// findJob finds the hosts on which the selected job runs at some time: a message names a process of it, or one has
// memory at the beginning. All their messages are selected, so no batch is missing between others.
func (f *File) findJob() error {
	jobs, err := recording.NewJobHosts(f.selection.Job)
	if err != nil {
		return err
	}
	if err := f.findInState(jobs); err != nil {
		return err
	}
	for m, err := range f.inFileOrder() {
		if err != nil {
			return err
		}
		jobs.Matches(m)
	}
	f.jobs = jobs
	return nil
}

// findInState adds the hosts whose state at the beginning has a process of the job.
func (f *File) findInState(jobs *recording.JobHosts) error {
	byShard := map[int]*consumer.Replay{}
	for s, err := range f.sections() {
		if err != nil {
			return err
		}
		if s.Fold != fold.Leak.Name() {
			continue
		}
		p := byShard[s.Shard]
		if p == nil {
			p = consumer.NewReplay(s.Shard, leak.New(leak.Config{}), false, slog.New(slog.DiscardHandler))
			byShard[s.Shard] = p
		}
		if err := p.Restore(s); err != nil {
			return err
		}
	}
	for _, p := range byShard {
		for _, q := range p.Fold().(*leak.Tracker).Report().Processes {
			if !q.Ended && jobs.Is(q.Job) {
				jobs.Add(recording.HostOf(q.ID.Cluster, q.ID.Host))
			}
		}
	}
	return nil
}
