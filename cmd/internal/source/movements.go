package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// movements folds the memory events of all lanes.
type movements struct {
	source   *Source
	receiver func() func(*leak.Movement)
	visit    func(*recording.Message) error
	log      *slog.Logger
	folds    map[*moved.Lane]*laneFold
	begin    time.Time // of the range, or of the file if that is later; zero: unknown
	missing  []string

	decoder *schema.Decoder
	batch   schema.Batch // reused
}

// laneFold is the leak fold of one lane.
type laneFold struct {
	*consumer.Replay
	tracker *leak.Tracker
	receive func(*leak.Movement)
	within  bool // the range has begun
	quality
}

// enter makes the fold report movements from now on, and first what is live since the beginning of the range.
func (f *laneFold) enter(begin time.Time) {
	if !f.within {
		f.within = true
		f.note(f.tracker.Report())
		f.tracker.Live(begin)
	}
}

// Movements folds the memory events of all processes up to the end of a range, from the state at the beginning of the
// recording on. receiver returns the receiver of the movements of one lane: those in the range, and before them what
// was live at its beginning. After each message in the range, Movements calls visit with it, unless it is nil.
// The findings are those of the selected processes within the range. missing are sentences about what is not known of
// them.
func (s *Source) Movements(ctx context.Context, r *Range, receiver func() func(*leak.Movement),
	visit func(*recording.Message) error, log *slog.Logger) (f Findings, missing []string, err error) {
	m := &movements{source: s, receiver: receiver, visit: visit, log: log, folds: map[*moved.Lane]*laneFold{},
		decoder: schema.NewDecoder()}
	if s.ofBus {
		m.begin = r.Since
	}
	if err = m.restore(ctx); err == nil {
		err = m.read(ctx, r)
	}
	var e evidence
	seen := map[schema.ProcessID]bool{}
	for _, lane := range m.folds {
		lane.enter(m.begin) // the range may have no messages of the lane
		report := lane.tracker.Report()
		lane.sum(report, r, &f, &e)
		for i := range report.Processes {
			if p := &report.Processes[i]; r.Selects(&p.Info) {
				if seen[p.ID] {
					e.moved++
				}
				seen[p.ID] = true
			}
		}
	}
	s.addFindings(&f)
	var unselected []string
	before := !r.Until.IsZero() && s.End.IsZero() // the range ends before the recording and its state
	if err == nil && (!e.selected || before) {
		unselected, err = s.unselected(ctx, r, false)
	}
	return f, slices.Concat(unselected, m.missing, e.missing(), s.beginnings(), s.Missing(), s.unknownKinds()), err
}

// fold returns the fold of a lane.
func (m *movements) fold(lane *moved.Lane) *laneFold {
	f := m.folds[lane]
	if f == nil {
		f = &laneFold{receive: m.receiver(), quality: quality{found: map[*process.Info]*leak.Counters{},
			late: map[schema.ProcessID]bool{}}}
		f.tracker = leak.New(leak.Config{OnMovement: func(move *leak.Movement) {
			if f.within {
				f.receive(move)
			}
		}, OnContradiction: func(of *process.Info, c leak.Counters) {
			if f.within {
				f.add(of, c)
			}
		}})
		whole := lane.Stream.State == recording.KnowledgeComplete
		f.Replay = consumer.NewReplay(lane.Shard(), f.tracker, whole, m.log)
		m.folds[lane] = f
	}
	return f
}

// restore restores the state at the beginning. What belongs to no host is empty before the first message of a shard.
func (m *movements) restore(ctx context.Context) error {
	hosts, err := m.source.Hosts(ctx)
	if err != nil {
		return err
	}
	for section, err := range m.source.State() {
		if err != nil {
			return err
		}
		if section.Fold != "leak" || section.Cluster+section.Host == "" && m.source.first(section.Shard) {
			continue
		}
		lane, section := hosts.OfSection(&section)
		if lane == nil {
			continue
		}
		if err := m.fold(lane).Restore(section); err != nil {
			m.missing = append(m.missing, fmt.Sprintf("shard %d: the state at the beginning cannot be used: %v",
				section.Shard, err))
			break
		}
	}
	return nil
}

func (m *movements) read(ctx context.Context, r *Range) error {
	for message, err := range m.source.InOrder(ctx, recording.Filter{Until: r.Until}) {
		if err != nil {
			return err
		}
		if m.begin.IsZero() {
			m.begin = message.Stored
		}
		if m.begin.Before(r.Since) {
			m.begin = r.Since
		}
		f, within := m.fold(message.Lane), !message.Stored.Before(r.Since)
		if within {
			f.enter(m.begin)
		}
		f.Apply(&message.Message)
		if within && f.tracker.HasOlder() && isCall(message.Recorded) &&
			m.decoder.Decode(message.Data, &m.batch) == nil {
			f.noteLate(&m.batch, r) // it may call no memory function
		}
		if message.Stored.After(m.source.End) { // the messages of several shards are not in order
			m.source.End = message.Stored
		}
		if within && m.visit != nil {
			if err := m.visit(message.Recorded); err != nil {
				return err
			}
		}
	}
	return nil
}

// isCall reports whether a message has launches, copies or waits.
func isCall(m *recording.Message) bool {
	switch m.Subject[strings.LastIndexByte(m.Subject, '.')+1:] {
	case schema.KindLaunch.String(), schema.KindCopy.String(), schema.KindSync.String():
		return true
	}
	return false
}

// first reports whether the first message of a shard is recorded.
func (s *Source) first(shard int) bool {
	return slices.ContainsFunc(s.Streams, func(stream recording.Stream) bool {
		return stream.Shard == shard && stream.State == recording.KnowledgeComplete && stream.After == 0
	})
}

// beginnings returns sentences about what the state at the beginning lacks.
func (s *Source) beginnings() (texts []string) {
	for _, stream := range s.Streams {
		switch stream.State {
		case recording.KnowledgeNone:
			texts = append(texts, fmt.Sprintf("shard %d: allocations from before the recording are unknown",
				stream.Shard))
		case recording.KnowledgePartial:
			texts = append(texts, fmt.Sprintf("shard %d: allocations from before %s are unknown", stream.Shard,
				textOf(stream.Since)))
		}
	}
	return texts
}

// Missing returns sentences about what the source lacks: messages of a bus, rows of an export, and each damage of the
// file that was read so far.
func (s *Source) Missing() (texts []string) {
	switch {
	case s.Empty():
		texts = append(texts, s.emptyText())
	case len(s.Streams) == 0:
		texts = append(texts, "the recording has no block of streams: what it selected, and whether its state is "+
			"complete, are unknown")
	}
	if s.lost != nil {
		texts = append(texts, s.lost.Error())
	}
	texts = append(texts, s.unusedRows()...)
	for _, d := range s.Damages {
		texts = append(texts, fmt.Sprintf("%d bytes of the recording at offset %d are damaged: %s", d.Bytes, d.Offset,
			d.Reason))
	}
	return texts
}

// Incomplete returns an error that names what is missing, or nil.
func Incomplete(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	return app.Incomplete(errors.New("the data are incomplete: " + strings.Join(missing, "; ")))
}

func textOf(t time.Time) string {
	if t.IsZero() {
		return "its beginning"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
