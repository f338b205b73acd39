package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// wantsState reports whether a recording begins with the state of leak, which later memory events continue.
func (r *Recorder) wantsState() bool {
	return len(r.Selection.Kinds) == 0 || slices.Contains(r.Selection.Kinds, schema.KindMemory)
}

// tracker is the fold leak. A checkpoint of gputap-leak also has sections of that program's other folds: it skips them.
type tracker struct{ *leak.Tracker }

func newTracker() tracker { // with the limits of gputap-leak
	return tracker{leak.New(leak.Config{KeepEnded: config.DefaultLeakCommand().Leak.KeepEnded})}
}

func (t tracker) Restore(s consumer.Section) error {
	if s.Fold() != t.Name() {
		return nil
	}
	return t.Tracker.Restore(s)
}

// addState adds the sections of leak up to the position of a source.
func (r *Recorder) addState(ctx context.Context, s *source, info *jetstream.StreamInfo, saved shard.SavedState,
	t schema.Topology) error {
	if !r.wantsState() {
		s.stream.State = recording.KnowledgeNone
		return nil
	}
	p, err := r.stateOf(ctx, s, info, saved, t)
	if err != nil {
		return err
	}
	s.stream.State = recording.KnowledgeComplete
	if !p.Whole() {
		s.stream.State = recording.KnowledgePartial
	}
	if r.jobs != nil { // a host on which the job starts later begins in the middle of its batches
		s.stream.State = recording.KnowledgePartial
		if p, err = r.ofJob(p, s.shard); err != nil {
			return err
		}
	}
	if r.MaxFileBytes > 0 {
		r.replays[s.shard] = p
	}
	if err = p.Sections(r.out.addSection); err != nil {
		return fmt.Errorf("record the state of shard %d: %w", s.shard, err)
	}
	return nil
}

// restore returns a fold that has a checkpoint of leak, and up to where that goes. It returns nil and the beginning of
// the stream if the checkpoint cannot be used.
func (r *Recorder) restore(s *source, info *jetstream.StreamInfo, saved shard.SavedState) (*consumer.Replay, uint64) {
	known := saved.Created.Equal(info.Created) || saved.Created.IsZero() && saved.Sequence == 0
	if len(saved.State) > 0 && known && saved.Sequence <= s.position {
		p := consumer.NewReplay(s.shard, newTracker(), before(info) <= saved.Sequence, r.Log)
		var hosts func(cluster, host string) bool
		if r.Selection.Cluster != "" || r.Selection.Host != "" {
			hosts = r.Selection.HasHost
		}
		err := p.RestoreCheckpoint(saved.State, hosts)
		if err == nil {
			return p, max(saved.Sequence, before(info))
		}
		r.Log.Warn("cannot use the checkpoint of leak; rebuilding its state from the stream", "shard", s.shard,
			"err", err)
	}
	return nil, before(info)
}

// ofJob returns a fold with only the hosts on which the selected job runs.
func (r *Recorder) ofJob(p *consumer.Replay, shard int) (*consumer.Replay, error) {
	for _, q := range p.Fold().(tracker).Report().Processes {
		if !q.Ended && r.jobs.Is(q.Job) {
			r.jobs.Add(recording.HostOf(q.ID.Cluster, q.ID.Host))
		}
	}
	only := consumer.NewReplay(shard, newTracker(), false, r.Log)
	err := p.Sections(func(s recording.Section) error {
		if s.Cluster+s.Host != "" && !r.jobs.Has(recording.HostOf(s.Cluster, s.Host)) {
			return nil
		}
		return only.Restore(s)
	})
	return only, err
}

// checkpoint reads the newest checkpoint of leak. A user without the permission records without checkpoints: NATS does
// not answer, so one attempt must do for all shards.
func (r *Recorder) checkpoint(ctx context.Context, number int) (none shard.SavedState) {
	if r.noCheckpoints {
		return none
	}
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	saved, err := shard.Saved(ctx, r.JetStream, "leak", number)
	if err == nil {
		return saved
	}
	if r.noCheckpoints = errors.Is(err, context.DeadlineExceeded); r.noCheckpoints {
		err = fmt.Errorf("%w: this user may lack the permission to read them", err)
	}
	r.Log.Warn("cannot read the checkpoints of leak; rebuilding its state from the stream", "shard", number, "err", err)
	return none
}

// fold applies the messages behind from, up to the position of a source.
func (r *Recorder) fold(ctx context.Context, p *consumer.Replay, s *source, from uint64) error {
	if s.position <= from {
		return nil
	}
	began, messages := time.Now(), 0
	reader := *s
	reader.filter, reader.position, reader.target = filterSubject(s.shard, &r.Selection, false), from, s.position
	reader.until, reader.stopping, reader.removed = time.Time{}, nil, func(uint64) {}
	reader.take = func(_ context.Context, m *recording.Message) error {
		messages++
		p.Apply(m)
		return nil
	}
	err := reader.run(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("read the state of shard %d: %w", s.shard, err)
	}
	r.Log.Debug("state of leak", "shard", s.shard, "from", from, "to", s.position, "messages", messages,
		"seconds", time.Since(began).Seconds())
	return nil
}

// continueStates makes a fold for each shard from the file that is continued, for the next file.
func (r *Recorder) continueStates(sources []*source) error {
	in, err := recording.Open(r.out.path)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, s := range sources {
		whole := s.stream.State == recording.KnowledgeComplete
		r.replays[s.shard] = consumer.NewReplay(s.shard, newTracker(), whole, r.Log)
	}
	for section, err := range in.State() {
		if p := r.replays[section.Shard]; err == nil && p != nil {
			err = p.Restore(section)
		}
		if err := r.ignoreDamage(err); err != nil {
			return err
		}
	}
	for m, err := range in.Messages(recording.Filter{}) {
		if err := r.ignoreDamage(err); err != nil {
			return err
		}
		if p := r.replays[m.Shard]; err == nil && p != nil {
			p.Apply(&m)
		}
	}
	return nil
}

// ignoreDamage logs damages. The fold counts the messages in them as lost.
func (r *Recorder) ignoreDamage(err error) error {
	if d, isDamage := errors.AsType[*recording.Damage](err); isDamage {
		r.Log.Warn("the recording is damaged; the state of the next file lacks its events", "file", r.out.path,
			"offset", d.Offset, "bytes", d.Bytes, "err", d.Reason)
		return nil
	}
	return err
}
