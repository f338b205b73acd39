package launch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema/metric"
)

var (
	kernelLaunches = metric.Desc("gputap_cuda_kernel_launches_total")
	graphLaunches  = metric.Desc("gputap_cuda_graph_launches_total")
	graphKernels   = metric.Desc("gputap_cuda_graph_kernel_launches_total")
	partialGraphs  = metric.Desc("gputap_cuda_graph_launches_partial_total")
	launchesByName = metric.Desc("gputap_cuda_kernel_launches_by_name_total")
)

// Describe implements prometheus.Collector.
func (h *Histogram) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{process.DescProcesses, kernelLaunches, graphLaunches, graphKernels,
		partialGraphs, launchesByName, gridBlocks, blockThreads} {
		to <- d
	}
}

// Overflow reports, by family, how often a series was counted as other since the fold was made.
func (h *Histogram) Overflow(see func(family string, times uint64)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	see("gputap_cuda_kernel_launches_total", h.workloads.Overflow())
	see("gputap_cuda_kernel_launches_by_name_total", h.byName.counts.Overflow())
	see("gputap_cuda_kernel_grid_blocks", h.sizes.Overflow())
}

// Collect implements prometheus.Collector. It copies the state under the lock and builds the metrics without it.
func (h *Histogram) Collect(to chan<- prometheus.Metric) {
	h.mu.Lock()
	workloads, byName, sizes := h.workloads.Page(), h.byName.counts.Page(), h.sizes.Page()
	processes := h.processes.Size(h.Name())
	h.mu.Unlock()
	to <- processes
	send := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for w, n := range workloads {
		if n.kernels > 0 {
			send(kernelLaunches, n.kernels, w.Labels()...)
		}
		if n.graphs > 0 {
			send(graphLaunches, n.graphs, w.Labels()...)
			send(graphKernels, n.fromGraphs, w.Labels()...)
			send(partialGraphs, n.partial, w.Labels()...)
		}
	}
	for k, n := range byName {
		send(launchesByName, uint64(n), k.comm, k.kernel)
	}
	for comm, s := range sizes {
		if s.blocks.Count > 0 {
			to <- s.blocks.Metric(gridBlocks, 1, blockPowers, string(comm))
			to <- s.threads.Metric(blockThreads, 1, threadPowers, string(comm))
		}
	}
}
