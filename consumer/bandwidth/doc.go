// Package bandwidth answers what moves: how many bytes each process copies and sets, in which direction and how fast,
// and how long it waits for the GPU. It folds copy batches and sync batches.
//
// # Copies
//
// Time is host time in the API call. A synchronous copy returns when it is done, so its bytes and time give the
// achieved throughput. An asynchronous copy returns when it is submitted, so its bytes count as submitted volume and
// its time does not count. When a later wait showed its end (schema.OpCopied), its bytes also count as ended, with its
// share of the time until then: a lower bound of the throughput. Copies behind kernels are separate, because their time
// contains the kernels. By CUDA's rules a small synchronous copy from pageable host memory may return when its
// data is staged, before it has arrived.
//
// Copies of a process are grouped by GPU, direction, size class and host memory: pageable, pinned (or registered or
// managed) or unknown. Above 1,024 groups the GPU of further ones is unknown.
//
// Memory sets are a separate row. Only calls with result 0 count as copies or sets; failed calls are counted by
// CUresult. Calls recorded into a graph did not run and are counted separately. A copy whose direction this version
// does not know has the direction "".
//
// A metric family has at most 2,000 series per shard. Everything above counts as comm="other", by kind and mode. The
// counters belong to workloads and outlive processes.
//
// # Snapshots and concurrency
//
// A restored fold behaves like one that was never interrupted. The section of no host holds the counts of comm="other".
// One goroutine at a time calls Apply, Forget, Snapshot and Restore, and Apply in seq order per host and kind. Any
// number of goroutines may call Report and Collect meanwhile. The state depends only on the batches.
package bandwidth
