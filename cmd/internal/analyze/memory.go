package analyze

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema/recording"
)

// Range selects what is analyzed.
type Range struct {
	query.Filter
	Since, Until time.Time // when NATS stored the messages; zero: no limit
}

// memory is the movements of memory in a range of a source.
type memory struct {
	*analysis.Journal
	Findings Findings
	Missing  []string // sentences about what is not known

	end time.Time // when NATS stored the last message
}

// Findings counts events that do not fit together.
type Findings struct {
	UnmatchedFrees  uint64 `json:"unmatched_frees"` // of memory whose allocation was not seen
	Reallocations   uint64 `json:"reallocations"`   // over live memory: its free was not seen
	LateFrees       uint64 `json:"late_frees"`      // of a life that such an allocation has ended
	UnknownContexts uint64 `json:"unknown_contexts"`
	Failed          uint64 `json:"failed_calls"` // of the memory functions
}

// shardFold is the leak fold of one shard.
type shardFold struct {
	*consumer.Replay
	tracker *leak.Tracker
	receive func(*leak.Movement)
	within  bool // the range has begun
}

// begin makes the fold report movements from now on, and first what is live.
func (f *shardFold) begin() {
	if !f.within {
		f.within = true
		f.tracker.Live()
	}
}

// readMemory folds the memory events of a source up to the end of the range.
func readMemory(ctx context.Context, s *source.Source, r *Range, log *slog.Logger) (*memory, error) {
	m := &memory{Journal: analysis.NewJournal("")}
	folds := map[int]*shardFold{}
	fold := func(shard int) *shardFold {
		f := folds[shard]
		if f == nil {
			f = &shardFold{receive: m.Receiver()}
			f.tracker = leak.New(leak.Config{OnMovement: func(move *leak.Movement) {
				if f.within {
					f.receive(move)
				}
			}})
			f.Replay = consumer.NewReplay(shard, f.tracker, whole(s, shard), log)
			folds[shard] = f
		}
		return f
	}
	err := m.read(ctx, s, r, fold)
	for _, f := range folds {
		f.begin() // the range may have no messages of the shard
		m.count(f.tracker.Report())
	}
	m.missing(s)
	if err == nil {
		_, err = m.Processes()
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("analyze %s: %w", s.Name, err)
	}
	return m, nil
}

func (m *memory) read(ctx context.Context, s *source.Source, r *Range, fold func(shard int) *shardFold) error {
	for section, err := range s.State() {
		if err != nil {
			return err
		}
		if section.Fold != "leak" || fromFirst(s, section.Shard) {
			continue
		}
		if err := fold(section.Shard).Restore(section); err != nil {
			m.Missing = append(m.Missing, fmt.Sprintf("shard %d: the state at the beginning cannot be used: %v",
				section.Shard, err))
			break
		}
	}
	filter := recording.Filter{Until: r.Until}
	for message, err := range s.Messages(filter) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		f := fold(message.Shard)
		if !message.Stored.Before(r.Since) {
			f.begin()
		}
		f.Apply(&message)
		m.end = message.Stored
	}
	return nil
}

// fromFirst reports whether the first message of a shard is recorded: the state before it is empty.
func fromFirst(s *source.Source, shard int) bool {
	return slices.ContainsFunc(s.Streams, func(stream recording.Stream) bool {
		return stream.Shard == shard && stream.State == recording.KnowledgeComplete && stream.After == 0
	})
}

// whole reports whether a shard is recorded from its first message on.
func whole(s *source.Source, shard int) bool {
	return slices.ContainsFunc(s.Streams, func(stream recording.Stream) bool {
		return stream.Shard == shard && stream.State == recording.KnowledgeComplete
	})
}

func (m *memory) count(report leak.Report) {
	c := report.Counters
	m.Findings.UnmatchedFrees += c.UnmatchedFrees
	m.Findings.Reallocations += c.ReallocOverLive
	m.Findings.LateFrees += c.LateFrees
	m.Findings.UnknownContexts += c.UnknownContexts
	evidence := map[string]uint64{}
	for i := range report.Processes {
		p := &report.Processes[i]
		evidence[p.Evidence]++
		for _, call := range p.Calls {
			m.Findings.Failed += call.Failed
		}
	}
	if n := evidence["late"]; n > 0 {
		m.Missing = append(m.Missing, app.Plural(n, "process", "processes")+" ran before gputap did: earlier "+
			"allocations are unknown")
	}
	if n := evidence["gap"]; n > 0 {
		m.Missing = append(m.Missing, "events of "+app.Plural(n, "process", "processes")+" were lost")
	}
}

// missing adds what the source lacks.
func (m *memory) missing(s *source.Source) {
	for _, stream := range s.Streams {
		switch stream.State {
		case recording.KnowledgeNone:
			m.Missing = append(m.Missing, fmt.Sprintf("shard %d: allocations from before the recording are unknown",
				stream.Shard))
		case recording.KnowledgePartial:
			m.Missing = append(m.Missing, fmt.Sprintf("shard %d: allocations from before %s are unknown", stream.Shard,
				textOf(stream.Since)))
		}
	}
	m.Missing = append(m.Missing, damagesOf(s)...)
}

func textOf(t time.Time) string {
	if t.IsZero() {
		return "its beginning"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// selected returns the processes that the range selects.
func (m *memory) selected(r *Range) (list []*analysis.Process) {
	all, _ := m.Processes() // readMemory has returned its error
	for _, p := range all {
		if r.Process(&query.Subject{Cluster: p.ID.Cluster, Host: p.ID.Host, User: p.User, Comm: p.Comm, Job: p.Job,
			UID: p.UID, PID: p.ID.PID}) {
			list = append(list, p)
		}
	}
	return list
}
