package analyze

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Range selects what is analyzed.
type Range = source.Range

// Findings counts events that do not fit together.
type Findings = source.Findings

// memoryKinds returns the kinds of events from which an answer about memory comes.
func memoryKinds(by string) []schema.Kind {
	if by == byTorch {
		return []schema.Kind{schema.KindMemory, schema.KindTensor, schema.KindHost}
	}
	return []schema.Kind{schema.KindMemory, schema.KindHost}
}

// byTorch is the word of --by for what PyTorch's caching allocator holds.
const byTorch = "torch"

// memory is the movements of memory in a range of a source.
type memory struct {
	*analysis.Journal
	Torch    *analysis.Journal // of PyTorch's allocators; nil: not wanted
	Findings Findings
	Missing  []string // sentences about what is not known
	Notes    []string // sentences about what the source lacks and the answer does not need
	wall     bool     // times are those of a clock
}

// readMemory folds the memory events of a source up to the end of the range, and with torch those of PyTorch, too.
func readMemory(ctx context.Context, s *source.Source, r *Range, torch bool, log *slog.Logger) (*memory, error) {
	m := &memory{Journal: analysis.NewJournal(""), Notes: s.Notes(schema.KindMemory), wall: s.HasWallTime()}
	var visit func(*recording.Message) error
	if torch {
		m.Torch = analysis.NewJournal("")
		visit = m.visitTensors(r)
	}
	var err error
	if m.Findings, m.Missing, err = s.Movements(ctx, r, m.Receiver, visit, log); err == nil {
		_, err = m.Processes()
	}
	if err == nil && torch {
		err = m.checkTorch(s)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("analyze %s: %w", s.Name, err)
	}
	return m, nil
}

// visitTensors returns a function that gives the tensor batches to Torch.
func (m *memory) visitTensors(r *Range) func(*recording.Message) error {
	batches, receive := source.NewBatches(r), m.Torch.TorchReceiver()
	suffix := "." + schema.KindTensor.String()
	return func(message *recording.Message) error {
		if strings.HasSuffix(message.Subject, suffix) {
			if b := batches.Of(message); b != nil {
				receive(b)
			}
		}
		return nil
	}
}

func (m *memory) checkTorch(s *source.Source) error {
	list, err := m.Torch.Processes()
	if len(list) == 0 && !s.Chosen(schema.KindTensor) && !s.Empty() {
		m.Missing = append(m.Missing, "no events of PyTorch's allocator are recorded: use the feature torch")
	}
	return err
}

// Close removes the temporary files.
func (m *memory) Close() {
	m.Journal.Close()
	if m.Torch != nil {
		m.Torch.Close()
	}
}

// selected returns the processes that the range selects, by host, cluster, PID and start.
func (m *memory) selected(r *Range) (list []*analysis.Process) { return selected(m.Journal, r) }

func selected(j *analysis.Journal, r *Range) (list []*analysis.Process) {
	all, _ := j.Processes() // readMemory has returned its error
	for _, p := range all {
		if r.Selects(&p.Info) {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b *analysis.Process) int {
		return new(whoOf(a)).compare(new(whoOf(b)))
	})
	return list
}

// split returns the processes whose curves --by asks for.
func (m *memory) split(r *Range, by string) []*analysis.Process {
	if by == byTorch {
		return selected(m.Torch, r)
	}
	return m.selected(r)
}
