// Package anomaly folds memory batches into alerts: what a process did that is unlike itself, or
// that failed for want of memory.
//
// Rules. alloc_size: a GPU allocation of at least 256 MiB that is far above the last 512 of its
// process, by a robust z-score of log2(bytes); a process is judged from its 17th allocation on, and
// what was unusual does not become usual until it happened 64 times. oom: an allocation call that
// returned CUDA_ERROR_OUT_OF_MEMORY, once per process and call within the cool-down. Calls that
// make no memory of the process's own are not judged: reserved addresses, imports and openings, pools,
// and what was recorded into a graph.
//
// Every alert names process, thread, address and bytes, says what to do next, and points at the
// batch that shows it. What a guard held back is counted by rule and reason: silence is explained.
//
// Order and delivery are as for any fold: batches in seq order per host and kind, each once. Lost
// events make an alert no less true; they can hide one.
//
// The state depends on the batches alone: the same bytes give the same alerts, whatever the wall
// clock. Logarithms of amd64 and arm64 may differ in their last bit, and so may what a score on its very bound comes to. It is bounded: 2 KiB a process, the newest 1,000 alerts, 2,000 series a metric family.
//
// Snapshot and Restore carry all of that over, cool-downs and the newest alerts too: a fold that was restored
// goes on as if nothing had been, and raises none of its alerts again. Hosts of several shards may come together; of their alerts
// the 1,000 with the highest numbers stay. A host's section holds its processes,
// alerts and counts, that of no host what counts as other and what was held back.
//
// Concurrency. One goroutine at a time calls Apply, Snapshot and Restore; any number may read meanwhile. OnAlert is
// called by Apply's goroutine, outside the lock.
package anomaly
