package replay

import (
	"context"
	"log/slog"
	"slices"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/leak"
)

// LocalOptions of a Local.
type LocalOptions struct {
	Pace
	Consumers []string // names of fold.Names; none: all
	Leak      config.Leak
	Anomaly   config.Anomaly
	Listen    bool // answer commands of this host during the replay
}

// Local replays a recording into the folds of gputap run.
type Local struct {
	*player
	folds  *folds
	server *server // nil without Listen
}

// NewLocal restores the state at the beginning of a recording. Close the Local after use.
func NewLocal(ctx context.Context, f *File, o LocalOptions, log *slog.Logger) (l *Local, err error) {
	l = &Local{}
	raise := func(string) func(alert.Alert) { return nil }
	if lanes := len(f.hosts.Lanes(f.streams)); o.Listen && lanes > 0 {
		if l.server, err = startServer(ctx, lanes, log); err != nil {
			return nil, err
		}
		raise = l.server.raise
	}
	if l.folds, err = newFolds(f, func() []fold.Fold { return create(&o, raise) }, log); err != nil {
		l.Close()
		return nil, err
	}
	l.player = newPlayer(f, o.Pace, l.folds.apply)
	if l.server != nil {
		l.folds.live = true
		l.server.answer(l.folds.sets)
	}
	return l, nil
}

// create returns the chosen folds of one shard, as gputap run has them. Summaries of ranks are dropped: the recording
// has those that were published.
func create(o *LocalOptions, raise func(name string) func(alert.Alert)) (list []fold.Fold) {
	for _, entry := range fold.All() {
		name := entry.Name()
		switch {
		case len(o.Consumers) > 0 && !slices.Contains(o.Consumers, name):
		case name == fold.Leak.Name():
			list = append(list, fold.MemoryOfRun(o.Leak, raise(name)))
		case name == fold.Anomaly.Name():
			list = append(list, fold.NewAnomalies(o.Anomaly, raise(name), nil))
		default:
			list = append(list, entry.NewUnlimited())
		}
	}
	return list
}

// Run replays until the end of the recording, or until ctx ends.
func (l *Local) Run(ctx context.Context) error { return l.run(ctx) }

// Snapshot reads the folds after Run. Its time is that of the last message; without messages, of the last write to the
// file.
func (l *Local) Snapshot() *report.Snapshot {
	l.folds.showHeard(0)
	at := l.Stats().Last
	if at.IsZero() {
		at = l.file.written
	}
	return l.folds.snapshot(at, l.file)
}

// Largest returns the n rows of equal live allocations with the most bytes.
func (l *Local) Largest(n int) []leak.TopRow { return fold.Largest(l.folds.sets, n) }

// Lost returns the lost events by cause: see report.Lost.
func (l *Local) Lost() map[string]uint64 { return l.folds.lost() }

// Close ends the server.
func (l *Local) Close() {
	if l.server != nil {
		l.server.stop()
	}
}
