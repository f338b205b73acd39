package launch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
)

var (
	workloadLabels = []string{"hostname", "gpu", "UUID", "container", "comm"}

	kernelLaunches = prometheus.NewDesc("gputap_cuda_kernel_launches_total",
		"CUDA kernels launched, including those inside graphs. gpu is the ordinal in the process, empty while unknown.",
		workloadLabels, nil)
	graphLaunches = prometheus.NewDesc("gputap_cuda_graph_launches_total",
		"Executable graphs launched.", workloadLabels, nil)
	graphKernels = prometheus.NewDesc("gputap_cuda_graph_kernel_launches_total",
		"CUDA kernels launched inside executable graphs, a part of all launched kernels.", workloadLabels, nil)
	partialGraphs = prometheus.NewDesc("gputap_cuda_graph_launches_partial_total",
		"Executable graphs launched whose CUDA kernels are not all known.", workloadLabels, nil)
	launchesByName = prometheus.NewDesc("gputap_cuda_kernel_launches_by_name_total",
		"CUDA kernels launched, by name without template arguments. "+
			"Each comm has series for its most launched kernels; the others count as other.",
		[]string{"comm", "kernel"}, nil)
)

// Describe implements prometheus.Collector.
func (h *Histogram) Describe(ch chan<- *prometheus.Desc) {
	ch <- kernelLaunches
	ch <- graphLaunches
	ch <- graphKernels
	ch <- partialGraphs
	ch <- launchesByName
}

// Collect implements prometheus.Collector. It copies the state under the lock and builds the metrics without it.
func (h *Histogram) Collect(ch chan<- prometheus.Metric) {
	workloads, byName := h.scrape()
	for w, n := range workloads {
		if n.kernels > 0 {
			ch <- total(kernelLaunches, n.kernels, w.hostname, w.gpu, w.uuid, w.container, w.comm)
		}
		if n.graphs > 0 {
			ch <- total(graphLaunches, n.graphs, w.hostname, w.gpu, w.uuid, w.container, w.comm)
			ch <- total(graphKernels, n.fromGraphs, w.hostname, w.gpu, w.uuid, w.container, w.comm)
			ch <- total(partialGraphs, n.partial, w.hostname, w.gpu, w.uuid, w.container, w.comm)
		}
	}
	for k, n := range byName {
		ch <- total(launchesByName, n, k.comm, k.kernel)
	}
}

// labels are the labels of one series. Hosts of one name in two clusters share it.
type labels struct{ hostname, gpu, uuid, container, comm string }

func (h *Histogram) scrape() (map[labels]launches, map[kernelLabels]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	workloads := make(map[labels]launches, len(h.workloads.values))
	add := func(w workload, n *launches) {
		if n == nil {
			return
		}
		l := labels{process.Label(w.host.Host), w.gpu, w.uuid, w.container, w.comm}
		sum := workloads[l]
		sum.add(n)
		workloads[l] = sum
	}
	for w, n := range h.workloads.values {
		add(w, n)
	}
	add(h.workloads.overflow, h.workloads.rest)
	byName := make(map[kernelLabels]uint64, len(h.byName.counts.values))
	for k, n := range h.byName.counts.values {
		byName[k] = *n
	}
	if rest := h.byName.counts.rest; rest != nil {
		byName[h.byName.counts.overflow] += *rest
	}
	return workloads, byName
}

func total(desc *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
}
