package metric

import "slices"

var memoryFamilies = slices.Concat(
	of(Leak, LifeProcess, Process,
		row{"gputap_cuda_memory_live_bytes", Gauge, []string{"kind"}, "Bytes that a running process holds. " +
			"Kinds pinned and registered are host memory, all others GPU memory."},
		row{"gputap_cuda_memory_live_allocations", Gauge, []string{"kind"}, "Live allocations of a running process."},
		row{"gputap_cuda_memory_peak_bytes", Gauge, []string{"kind"},
			"Largest number of bytes that a running process held at once."},
		row{"gputap_cuda_memory_holders", Gauge, []string{"kind"},
			"Pieces of memory that a running process opened and did not close. " +
				"Their bytes count in the process that allocated them."},
		row{"gputap_cuda_pool_reserved_bytes", Gauge, nil, "Bytes reserved by the memory pools of a running process, " +
			"as the driver last reported them to the process."},
		row{"gputap_leak_suspected_bytes", Gauge, nil,
			"Bytes of a running process on one GPU that a verdict suspects to be leaked."},
		row{"gputap_leak_growth_bytes_per_second", Gauge, nil,
			"Growth of the live memory of a running process on one GPU that did not come down again. " +
				"Without a verdict it has no series."},
		row{"gputap_leak_oldest_allocation_age_seconds", Gauge, nil,
			"Age of the oldest allocation that a growing or suspect verdict names."},
		row{"gputap_leak_verdicts", Gauge, []string{"state"},
			"Verdicts on the memory of running processes on one GPU: warming, steady, growing, suspect or unknown. " +
				"1 for each process and GPU."},
		row{"gputap_leak_state_incomplete", Gauge, nil,
			"1 if the numbers of a running process are incomplete: " +
				"events were lost, or it ran before gputap attached."}),
	of(Leak, LifeHost, Workload,
		row{"gputap_cuda_memory_allocated_bytes_total", Counter, []string{"kind"},
			"Bytes allocated. Allocated bytes equal freed plus live plus unfreed-at-exit bytes."},
		row{"gputap_cuda_memory_freed_bytes_total", Counter, []string{"kind"}, "Bytes freed."},
		row{"gputap_cuda_memory_allocs_total", Counter, []string{"kind"}, "Successful allocations."},
		row{"gputap_cuda_memory_frees_total", Counter, []string{"kind"}, "Freed allocations."},
		row{"gputap_leak_unfreed_at_exit_bytes_total", Counter, []string{"kind"},
			"Bytes that were live when their process ended or replaced its image."},
		row{"gputap_cuda_api_errors_total", Counter, []string{"api", "error"},
			"Failed memory calls of the CUDA driver API, by CUresult."}),
	of(Leak, LifeHost, Host,
		row{"gputap_leak_unexplained_bytes", Gauge, []string{"UUID"},
			"Used bytes of a GPU minus live bytes, at the latest cuMemGetInfo call."},
		row{"gputap_leak_unmatched_frees_total", Counter, nil,
			"Successful frees of memory whose allocation was not seen."},
		row{"gputap_leak_realloc_over_live_total", Counter, nil, "Allocations at an address that was live. " +
			"Minus the late frees, this is the number of frees that were never seen."},
		row{"gputap_leak_late_frees_total", Counter, nil,
			"Frees whose record arrived after the next allocation of the same address."},
		row{"gputap_leak_unknown_contexts_total", Counter, nil,
			"CUDA context calls whose effect on memory is unknown. Live bytes may be too high."}),
)

var torchFamilies = of(Leak, LifeProcess, Process,
	row{"gputap_torch_allocated_bytes", Gauge, nil,
		"Bytes of the blocks that PyTorch's allocator has handed out to a running process."},
	row{"gputap_torch_reserved_bytes", Gauge, nil,
		"Bytes of driver memory that PyTorch's allocator holds in a running process."},
	row{"gputap_torch_cached_bytes", Gauge, nil, "Reserved minus allocated bytes of PyTorch's allocator."},
	row{"gputap_torch_peak_allocated_bytes", Gauge, nil, "Largest gputap_torch_allocated_bytes of the process."},
	row{"gputap_torch_peak_reserved_bytes", Gauge, nil, "Largest gputap_torch_reserved_bytes of the process."},
	row{"gputap_torch_blocks", Gauge, nil,
		"Blocks that PyTorch's allocator has handed out to a running process."},
)

// gpu is the minor number of the device in the families of hosts, because no process is named.
var hostFamilies = of(Leak, LifeHost, Host,
	row{"gputap_gpu_info", Gauge, []string{"gpu", "UUID", "model_name", "pci_bus_id"},
		"GPUs of a host. The value is always 1."},
	row{"gputap_gpu_memory_bytes", Gauge, []string{"gpu", "UUID"}, "Memory of a GPU; absent while unknown."},
	row{"gputap_library_symbols", Gauge, []string{"library", "state"},
		"Driver functions that gputap knows, by library and state of the probe: attached, absent or failed."},
	row{"gputap_unseen_functions", Gauge, nil,
		"Driver functions without a probe that processes looked up and that handle memory or submit work."},
)

// alertFamilies are those of a fold that raises alerts.
func alertFamilies(fold string, component Component) []Family {
	return slices.Concat(
		of(component, LifeAlert, with(Workload, "rule", "severity"),
			row{"gputap_" + fold + "_active", Gauge, nil,
				"Alerts that fire; 0 for five minutes of event time after the last one cleared."}),
		of(component, LifeHost, with(Workload, "rule", "severity"),
			row{"gputap_" + fold + "_events_total", Counter, nil, "Alerts raised by rule."}),
		of(component, LifeShard, nil,
			row{"gputap_" + fold + "_suppressed_total", Counter, []string{"rule", "reason"},
				"Findings that raised no alert, by reason."}))
}

var jobFamilies = of(Anomaly, LifeShard, nil,
	row{"gputap_anomaly_jobs", Gauge, []string{"state"}, "Jobs whose ranks send summaries, by state."},
	row{"gputap_anomaly_rank_windows_total", Counter, []string{"result"},
		"Windows of two seconds of the ranks of jobs: summarized, or incomplete because events were lost."},
	row{"gputap_anomaly_ranks_ignored_total", Counter, nil,
		"Threads of ranks in batches that were ignored because there are too many processes."},
	row{"gputap_anomaly_job_ranks_ignored_total", Counter, nil,
		"Ranks in summaries that were ignored because there are too many."},
)

var launchFamilies = slices.Concat(
	of(Launch, LifeHost, Workload,
		row{"gputap_cuda_kernel_launches_total", Counter, nil, "CUDA kernels launched, including those inside graphs."},
		row{"gputap_cuda_graph_launches_total", Counter, nil, "Executable graphs launched."},
		row{"gputap_cuda_graph_kernel_launches_total", Counter, nil,
			"CUDA kernels launched inside executable graphs, a part of all launched kernels."},
		row{"gputap_cuda_graph_launches_partial_total", Counter, nil,
			"Executable graphs launched whose CUDA kernels are not all known."}),
	of(Launch, LifeShard, []string{"comm"},
		row{"gputap_cuda_kernel_launches_by_name_total", Counter, []string{"kernel"},
			"CUDA kernels launched, by name without template arguments. " +
				"Each comm has series for its most launched kernels; the others count as other."},
		row{"gputap_cuda_kernel_grid_blocks", Histogram, nil,
			"Thread blocks in the grid of a CUDA kernel, without those inside graphs."},
		row{"gputap_cuda_kernel_block_threads", Histogram, nil,
			"Threads in a block of a CUDA kernel, without those inside graphs."}),
)

var bandwidthFamilies = slices.Concat(
	of(Bandwidth, LifeHost, Workload,
		row{"gputap_cuda_memcpy_bytes_total", Counter, []string{"kind", "mode"},
			"Bytes of successful copies. Mode sync: copied; mode async: submitted."},
		row{"gputap_cuda_memcpy_calls_total", Counter, []string{"kind", "mode"},
			"Successful copies. Mode sync: done; mode async: submitted."},
		row{"gputap_cuda_memcpy_busy_seconds_total", Counter, []string{"kind"},
			"Host time in successful synchronous copy calls. " +
				"Bytes of mode sync divided by this time are the throughput."},
		row{"gputap_cuda_memcpy_ended_bytes_total", Counter, []string{"kind"},
			"Bytes of asynchronous copies whose end a wait showed, without those behind kernels."},
		row{"gputap_cuda_memcpy_ended_seconds_total", Counter, []string{"kind"},
			"Time from their submission until the end of that wait. " +
				"Bytes divided by it are a lower bound of the throughput."},
		row{"gputap_cuda_memset_bytes_total", Counter, []string{"mode"},
			"Bytes of successful memory sets. Mode sync: set; mode async: submitted."},
		row{"gputap_cuda_memset_calls_total", Counter, []string{"mode"},
			"Successful memory sets. Mode sync: done; mode async: submitted."},
		row{"gputap_cuda_sync_seconds_total", Counter, nil,
			"Host time in successful calls that wait for the GPU, summed over threads."},
		row{"gputap_cuda_sync_calls_total", Counter, nil, "Successful calls that wait for the GPU."}),
	of(Bandwidth, LifeShard, []string{"comm", "kind", "mode"},
		row{"gputap_cuda_memcpy_size_bytes", Histogram, nil,
			"Bytes of a successful copy. Mode sync: copied; mode async: submitted."},
		row{"gputap_cuda_memcpy_call_seconds", Histogram, nil,
			"Host time in a successful call that copies. Mode async: its submission."}),
	of(Bandwidth, LifeHost, GPU,
		row{"gputap_cuda_memcpy_throughput_bytes_per_second", Histogram, []string{"kind"},
			"Throughput of a successful synchronous copy of at least 64 KiB."}),
)
