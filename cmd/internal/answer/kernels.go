package answer

import (
	"context"
	"iter"
	"time"

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
	Kernel
}

// Kernels lists the CUDA kernels of gputap-launch.
func (f *Fleet) Kernels(ctx context.Context, q query.Question) (*List[FleetKernel], error) {
	q.What = whatKernels
	list, total, reach, err := rows[kernelRow](ctx, f, q, "launch")
	if err != nil {
		return nil, err
	}
	items := make([]FleetKernel, 0, len(list))
	for i := range list {
		one := &Process{Launches: map[string]uint64{}, Kernels: map[string]*Kernel{}}
		one.kernel(&list[i].Func)
		items = append(items, FleetKernel{whoOf(&list[i].Info), list[i].Func.Name, *one.Kernels[list[i].Func.Name]})
	}
	return &List[FleetKernel]{Time: time.Now().UTC(), Reach: reach, Total: total, Items: items}, nil
}
