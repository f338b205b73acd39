package backtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/schema/recording"
)

// run reads a recording once, with several configurations of the rules.
type run struct {
	source             *source.Source
	begin, end         time.Time // zero: no limit
	variants           []*variant
	knowsAll, complete map[int]bool // shards: recorded from the first message on; with state at the beginning
	hosts              *moved.Hosts
	batches            *source.Batches // of the range
}

// Incident is an alert from its first firing to its end.
type Incident struct {
	alert.Alert           // as it fired last
	Fired       time.Time // for the first time
	Cleared     time.Time // zero: it fires at the end
}

// Alerts returns the alerts that fire within a range of a recording, oldest first, with the current configuration of
// the rules: that of the defaults and the variables. The rules also read what is before the range.
func Alerts(ctx context.Context, s *source.Source, since, until time.Time, log *slog.Logger) ([]*Incident, error) {
	rules, err := config.Load(command, nil, Rules{config.DefaultAnomaly(), config.DefaultLeak()})
	if err != nil {
		return nil, app.Usage(err)
	}
	r, err := newRun(ctx, s, since, until)
	if err != nil {
		return nil, err
	}
	v := r.variant(rules, log)
	if _, err := r.read(ctx); err != nil {
		return nil, err
	}
	return v.incidents(), nil
}

// newRun notes which shards are recorded from their first message on, and which have a state at the beginning.
func newRun(ctx context.Context, s *source.Source, begin, end time.Time) (*run, error) {
	r := &run{source: s, begin: begin, end: end, knowsAll: map[int]bool{}, complete: map[int]bool{},
		batches: source.NewBatches(&source.Range{})}
	var err error
	if r.hosts, err = s.Hosts(ctx); err != nil {
		return nil, err
	}
	inherits := r.hosts.Inherits(s.State())
	for _, stream := range s.Streams {
		if stream.State == recording.KnowledgeComplete {
			r.complete[stream.Shard] = true
			if stream.After == 0 && !inherits[stream.Shard] {
				r.knowsAll[stream.Shard] = true
			}
		}
	}
	return r, nil
}

// variant adds a configuration.
func (r *run) variant(rules Rules, log *slog.Logger) *variant {
	v := newVariant(rules, len(r.knowsAll) == len(r.source.Streams), log)
	r.variants = append(r.variants, v)
	return v
}

// read gives all messages to the rules, and returns sentences about missing data.
func (r *run) read(ctx context.Context) (missing []string, err error) {
	if missing, err = r.restore(); err != nil {
		return nil, err
	}
	for m, err := range r.source.InOrder(ctx, recording.Filter{Until: r.end}) {
		if err != nil {
			return nil, err
		}
		within := !m.Stored.Before(r.begin)
		if within {
			r.batches.Of(m.Recorded) // counts what is missing
		}
		for _, v := range r.variants {
			if within {
				v.begin()
			}
			v.apply(&m, r.complete[m.Lane.Stream.Shard])
		}
	}
	for _, v := range r.variants {
		v.begin() // the range may have no messages
	}
	return append(missing, r.missing()...), nil
}

// restore loads the allocations at the beginning. It returns why it could not. The state before a first message is
// empty.
func (r *run) restore() (missing []string, err error) {
	failed := map[int]bool{}
	for section, err := range r.source.State() {
		if err != nil {
			return nil, err
		}
		if section.Fold != "leak" || r.knowsAll[section.Shard] || failed[section.Shard] {
			continue
		}
		lane, section := r.hosts.OfSection(&section)
		if lane == nil {
			continue
		}
		for _, v := range r.variants {
			if err := v.restore(lane, section, r.complete[lane.Stream.Shard]); err != nil && !failed[section.Shard] {
				failed[section.Shard] = true
				missing = append(missing, err.Error())
			}
		}
	}
	return missing, nil
}

// missing lists the gaps in the data.
func (r *run) missing() (texts []string) {
	for _, stream := range r.source.Streams {
		if !r.knowsAll[stream.Shard] {
			texts = append(texts, fmt.Sprintf("shard %d: events from before the recording are unknown to the rules, "+
				"which compare with them", stream.Shard))
		}
	}
	return slices.Compact(slices.Concat(texts, r.source.Missing(), r.batches.Missing()))
}
