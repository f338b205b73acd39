// Package bandwidth answers what moves: how many bytes each process copies and sets, in which direction and how fast.
// It folds copy batches and sync batches.
//
// # Copies
//
// Time is host time in the API call. A synchronous copy returns when it is done, so its bytes and time give the
// achieved throughput. An asynchronous copy returns when it is submitted, so its bytes count as submitted volume and
// its time does not count. By CUDA's rules a small synchronous copy from pageable host memory may return when its
// data is staged, before it has arrived.
//
// Memory sets are a separate row. Only calls with result 0 count as copies or sets; failed calls are counted by
// CUresult. Calls recorded into a graph did not run and are counted separately. A copy whose direction this version
// does not know has the direction "".
//
// # Waits
//
// Calls that wait for the GPU are counted per process, with the host time in them.
//
// # Limits
//
// A metric family has at most 2,000 series per shard. Everything above counts as comm="other", by kind and mode. The
// counters belong to workloads (host, GPU, container, comm) and outlive processes.
//
// # Snapshots and concurrency
//
// Snapshot and Restore preserve the whole state: a restored fold behaves like one that was never interrupted. The
// section of a host holds its processes and series, the section of no host the counts of comm="other".
//
// One goroutine at a time calls Apply, Forget, Snapshot and Restore, and Apply in seq order per host and kind. Any
// number of goroutines may call Report and Collect meanwhile. The state depends only on the batches, never on the
// wall clock.
package bandwidth
