package tensor

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

var (
	allocatedBytes = process.Family("gputap_torch_allocated_bytes",
		"Bytes of the blocks that PyTorch's allocator has handed out to a running process.", "pid")
	reservedBytes = process.Family("gputap_torch_reserved_bytes",
		"Bytes of driver memory that PyTorch's allocator holds in a running process.", "pid")
	liveBlocks = process.Family("gputap_torch_blocks",
		"Blocks that PyTorch's allocator has handed out to a running process.", "pid")
)

// sample is the figures of one process on one GPU.
type sample struct {
	process.Workload
	pid                         string
	allocated, reserved, blocks uint64
}

// Describe implements prometheus.Collector.
func (f *Fold) Describe(to chan<- *prometheus.Desc) {
	to <- allocatedBytes
	to <- reservedBytes
	to <- liveBlocks
}

// Collect implements prometheus.Collector. It copies the figures under the lock and builds the metrics without it.
func (f *Fold) Collect(to chan<- prometheus.Metric) {
	for _, s := range f.samples() {
		send := func(d *prometheus.Desc, v uint64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), s.Labels(s.pid)...)
		}
		send(allocatedBytes, s.allocated)
		send(reservedBytes, s.reserved)
		send(liveBlocks, s.blocks)
	}
}

// samples returns the series of the running processes, each once. Series above the limit are summed in one.
func (f *Fold) samples() []sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	type key struct {
		process.Workload
		pid string
	}
	at := map[key]int{} // hosts of one name in two clusters share series
	var all []sample
	for _, p := range f.processes.All() {
		if p.Ended {
			continue
		}
		for _, d := range p.State.devices {
			if d.last == 0 {
				continue
			}
			k := key{d.workload(&p.Info).Page(), strconv.Itoa(int(p.ID.PID))}
			i, known := at[k]
			if !known && len(all) >= process.MaxSeries-1 {
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
			all[i].blocks += d.blocks
		}
	}
	return all
}

func (d *device) workload(i *process.Info) process.Workload {
	w := process.Workload{
		HostID: snapshot.HostID{Cluster: i.ID.Cluster, Host: i.ID.Host},
		UUID:   process.Label(d.uuid), Container: process.Label(i.Container), Comm: process.Label(i.Comm),
	}
	if d.ordinal != noGPU {
		w.GPU = strconv.Itoa(int(d.ordinal))
	}
	return w
}
