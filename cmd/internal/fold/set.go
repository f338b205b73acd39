package fold

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/query"
)

// Set is the folds of one shard that run in one process, each with its reader. The coverage fold comes last, because it
// adds to the processes of the others.
type Set struct {
	Shard   int
	Folds   []Fold
	Readers []*consumer.Reader // one for each fold
}

// Add adds a fold with its reader.
func (s *Set) Add(f Fold, r *consumer.Reader) {
	s.Folds, s.Readers = append(s.Folds, f), append(s.Readers, r)
}

// AddTo adds the reports of the folds to a snapshot.
func (s *Set) AddTo(to *report.Snapshot) {
	for i, f := range s.Folds {
		for _, part := range Parts(f) {
			to.Add(part, s.Readers[i])
		}
	}
	to.AddReaders(s.Readers)
}

// Largest returns the n rows of equal live allocations with the most bytes.
func Largest(sets []*Set, n int) (rows []leak.TopRow) {
	for _, s := range sets {
		for _, f := range s.Folds {
			if memory, ok := f.(*Memory); ok {
				found, _ := memory.Tracker.TopRows(n)
				rows = append(rows, found...)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b leak.TopRow) int { return cmp.Compare(b.TotalBytes, a.TotalBytes) })
	return rows[:min(n, len(rows))]
}

// Services returns a service for each fold, as consumers of a fleet have it, which answers for all sets. The sets have
// the same folds.
func Services(sets []*Set, nc *nats.Conn, log *slog.Logger) (list []*query.Service) {
	byName := map[string][]query.Shard{}
	var names []string
	for _, s := range sets {
		for name, part := range s.parts() {
			if byName[name] == nil {
				names = append(names, name)
			}
			byName[name] = append(byName[name], query.Shard{Number: s.Shard, Epoch: 1, Take: part.Take})
		}
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, query.NewService(query.Options{
			Fold: name, Instance: "run", Version: app.Version(),
			Shards: func() []query.Shard { return byName[name] },
		}, nc, log))
	}
	return list
}

// parts returns what answers for each fold. The part of leak includes the coverage fold, with or without a tracker.
func (s *Set) parts() map[string]*answer.Part {
	parts := map[string]*answer.Part{}
	for i, f := range s.Folds {
		name := f.Name()
		if _, isCoverage := f.(*coverage.Fold); isCoverage {
			name = Leak.Name()
		}
		if parts[name] == nil {
			parts[name] = &answer.Part{Reader: s.Readers[i]}
		}
		parts[name].Folds = append(parts[name].Folds, Parts(f)...)
	}
	return parts
}
