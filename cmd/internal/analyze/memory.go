package analyze

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/schema"
)

// Range selects what is analyzed.
type Range = source.Range

// Findings counts events that do not fit together.
type Findings = source.Findings

// memoryKinds are the kinds of events from which the answers about memory come.
var memoryKinds = []schema.Kind{schema.KindMemory, schema.KindHost}

// memory is the movements of memory in a range of a source.
type memory struct {
	*analysis.Journal
	Findings Findings
	Missing  []string // sentences about what is not known
}

// readMemory folds the memory events of a source up to the end of the range.
func readMemory(ctx context.Context, s *source.Source, r *Range, log *slog.Logger) (*memory, error) {
	m := &memory{Journal: analysis.NewJournal("")}
	var err error
	if m.Findings, m.Missing, err = s.Movements(ctx, r, m.Receiver, nil, log); err == nil {
		_, err = m.Processes()
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("analyze %s: %w", s.Name, err)
	}
	return m, nil
}

// selected returns the processes that the range selects.
func (m *memory) selected(r *Range) (list []*analysis.Process) {
	all, _ := m.Processes() // readMemory has returned its error
	for _, p := range all {
		if r.Selects(&p.Info) {
			list = append(list, p)
		}
	}
	return list
}
