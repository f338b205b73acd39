package answer

import (
	"context"
	"iter"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
)

// kernelRow is one CUDA kernel of one process.
type kernelRow struct {
	process.Info
	Func launch.Func
}

// kernelRows are the most launched kernels first.
func kernelRows(h *launch.Histogram, q *query.Question) (iter.Seq[any], int) {
	var rows []kernelRow
	for _, p := range selected(h.Report(), q, launchInfo) {
		for _, f := range p.Funcs {
			f.Shapes = nil
			rows = append(rows, kernelRow{p.Info, f})
		}
	}
	return largest(rows, q.Limit, func(k *kernelRow) uint64 { return k.Func.Launches })
}

// FleetKernel is one CUDA kernel of one process.
type FleetKernel struct {
	Who
	Name string `json:"kernel"`
	report.Kernel
}

// Kernels lists the CUDA kernels of gputap-launch.
func (f *Fleet) Kernels(ctx context.Context, q query.Question) (*List[FleetKernel], error) {
	q.What = whatKernels
	list, total, reach, err := rows[kernelRow](ctx, f, q, "launch")
	if err != nil {
		return nil, err
	}
	now, items := time.Now().UTC(), make([]FleetKernel, 0, len(list))
	for i := range list {
		row := &list[i]
		s := report.New(now) // kernels with the same name, for example in two modules, are separate items
		s.AddLaunches(&launch.Process{Info: row.Info, Funcs: []launch.Func{row.Func}})
		items = append(items, FleetKernel{whoOf(&row.Info), row.Func.Name, *s.Processes[0].Kernels[row.Func.Name]})
	}
	return &List[FleetKernel]{Time: now, Reach: reach, Total: total, Items: items}, nil
}
