package answer

import (
	"context"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/query"
)

// FleetCopy is the copies of one process in one direction.
type FleetCopy struct {
	Who
	Direction string `json:"direction"`
	report.Copy
}

// Copies lists the copies of gputap-bandwidth.
func (f *Fleet) Copies(ctx context.Context, q query.Question) (*List[FleetCopy], error) {
	q.What, q.Limit = whatProcesses, 0 // one process has several items
	list, _, reach, err := rows[bandwidth.Process](ctx, f, q, "bandwidth")
	if err != nil {
		return nil, err
	}
	now, items := time.Now().UTC(), []FleetCopy{}
	for i := range list {
		s := report.New(now)
		s.AddCopies(&list[i])
		for _, c := range list[i].Copies {
			items = append(items, FleetCopy{whoOf(&list[i].Info), c.Word(), *s.Processes[0].Copies[c.Word()]})
		}
	}
	return &List[FleetCopy]{Time: now, Reach: reach, Total: len(items), Items: items}, nil
}
