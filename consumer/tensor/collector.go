package tensor

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema/metric"
)

var (
	allocatedBytes   = metric.Desc("gputap_torch_allocated_bytes")
	reservedBytes    = metric.Desc("gputap_torch_reserved_bytes")
	cachedBytes      = metric.Desc("gputap_torch_cached_bytes")
	peakAllocated    = metric.Desc("gputap_torch_peak_allocated_bytes")
	peakReserved     = metric.Desc("gputap_torch_peak_reserved_bytes")
	stateAllocations = metric.Desc("gputap_consumer_state_allocations")
	liveBlocks       = metric.Desc("gputap_torch_blocks")
)

// sample is the figures of one process on one GPU.
type sample struct {
	process.Workload
	pid                                 string
	allocated, reserved, cached, blocks uint64
	peakAllocated, peakReserved         uint64
}

// Describe implements prometheus.Collector.
func (f *Fold) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{process.DescProcesses, stateAllocations, allocatedBytes, reservedBytes,
		cachedBytes, peakAllocated, peakReserved, liveBlocks} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It copies the figures under the lock and builds the metrics without it.
func (f *Fold) Collect(to chan<- prometheus.Metric) {
	all, processes, blocks := f.samples()
	to <- processes
	to <- prometheus.MustNewConstMetric(stateAllocations, prometheus.GaugeValue, float64(blocks), f.Name())
	for _, s := range all {
		send := func(d *prometheus.Desc, v uint64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), s.Labels(s.pid)...)
		}
		send(allocatedBytes, s.allocated)
		send(reservedBytes, s.reserved)
		send(cachedBytes, s.cached)
		send(peakAllocated, s.peakAllocated)
		send(peakReserved, s.peakReserved)
		send(liveBlocks, s.blocks)
	}
}

// Overflow reports how often a scrape counted a series as other since the fold was made.
func (f *Fold) Overflow(see func(family string, times uint64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	see("gputap_torch_allocated_bytes", f.above)
}

// samples returns the series of the running processes, each once, and the size of the state. Series above the limit are
// summed in one.
func (f *Fold) samples() (all []sample, processes prometheus.Metric, blocks uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	type key struct {
		process.Workload
		pid string
	}
	at := map[key]int{}
	for _, p := range f.processes.All() {
		if p.Ended {
			continue
		}
		for _, d := range p.State.devices {
			if d.last == 0 {
				continue
			}
			blocks += d.blocks
			k := key{d.workload(&p.Info).Page(), strconv.Itoa(int(p.ID.PID))}
			i, known := at[k]
			if !known && len(all) >= process.MaxSeries-1 {
				f.above++
				k = key{Workload: process.Workload{Comm: process.Other}}
				i, known = at[k]
			}
			if !known {
				i = len(all)
				at[k] = i
				all = append(all, sample{Workload: k.Workload, pid: k.pid})
			}
			all[i].allocated += d.allocated.now
			all[i].reserved += d.reserved.now
			all[i].cached += d.cachedBytes()
			all[i].peakAllocated += d.allocated.peak
			all[i].peakReserved += d.reserved.peak
			all[i].blocks += d.blocks
		}
	}
	return all, f.processes.Size(f.Name()), blocks
}

func (d *device) workload(i *process.Info) process.Workload {
	w := process.WorkloadOf(i)
	w.UUID = process.Label(d.uuid)
	if d.ordinal != noGPU {
		w.GPU = strconv.Itoa(int(d.ordinal))
	}
	return w
}
