// Package bandwidth measures what each process copies and sets: calls, bytes and time by direction.
//
// Time is host time in the API call. A synchronous copy returns when it is done, so its bytes and
// its time give the throughput that was achieved; an asynchronous copy returns when it is submitted,
// so its bytes count as submitted volume and its time does not count. Small synchronous copies from
// pageable host memory may return when their data is staged, before it has arrived: CUDA's rule.
//
// Sets of memory are a row of their own. What was recorded into a graph did not run and is counted
// apart, as calls.
//
// Waits for the GPU are counted beside: how many, and the host time in them, by process.
//
// Only copies with result 0 count; failed ones are in the calls, by their CUresult. A copy whose
// direction this version does not know has the direction "".
//
// Metrics hold at most 2,000 series a family; what comes later is counted under comm="other", by
// kind and mode. Their counters belong to workloads (host, GPU, container, comm) and outlive
// processes.
//
// Snapshot and Restore carry all of that over: a fold that was restored goes on as if nothing had been.
// A host's section holds its processes and series, that of no host what counts as other.
//
// Apply, Snapshot and Restore are called by one goroutine at a time, Apply in seq order per host and kind; Report and Collect may
// run beside it. Nothing looks at the wall clock: the same batches give the same sums.
package bandwidth
