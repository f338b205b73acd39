package screen

import (
	"context"
	"fmt"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/report"
)

// Source answers the questions of a screen, which asks one at a time.
type Source interface {
	// Overview returns all processes that the screen is about.
	Overview(ctx context.Context) (*answer.Overview, error)
	// Process returns one process with its largest allocations; nil: it is no longer known.
	Process(ctx context.Context, s Subject) (*report.Process, error)
}

// Subject names a process.
type Subject struct {
	Cluster, Host string
	PID           uint32
	Start         time.Time
}

func subjectOf(p *report.Process) Subject { return Subject{p.Cluster, p.Host, p.PID, p.Start} }

// Is reports whether p is the process.
func (s Subject) Is(p *report.Process) bool { return subjectOf(p).key() == s.key() }

func (s Subject) key() string {
	return fmt.Sprintf("%s/%s/%d/%d", s.Cluster, s.Host, s.PID, s.Start.UnixNano())
}
