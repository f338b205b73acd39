// Package anomaly finds unusual allocations. It folds memory batches into alerts.
//
// # Rules
//
// alloc_size: a GPU allocation of at least 256 MiB that is far above the last 512 allocations of its process, by a
// robust z-score of log2(bytes). A process is judged from its 17th allocation on. Outliers enter the baseline only
// after 64 outliers.
//
// oom: an allocation call that returned CUDA_ERROR_OUT_OF_MEMORY, once per process and call within the cooldown.
//
// Calls that allocate no memory for the process are not judged: address reservations, imports, opened memory, pools,
// and calls recorded into a graph.
//
// Every alert names the process, thread, address and bytes, suggests the next step, and names the batch that contains
// the finding. Findings suppressed by a cooldown, warm-up or limit are counted by rule and reason.
//
// # Order, delivery and limits
//
// Batches arrive once each, in seq order per host and kind. Lost events can hide a finding; they never make an alert
// wrong.
//
// The state depends only on the batches, never on the wall clock. Logarithms on amd64 and arm64 may differ in the
// last bit, and so may the verdict on a score exactly at the threshold. The state is limited to 2 KiB per process,
// the newest 1,000 alerts and 2,000 series per metric family.
//
// # Snapshots and concurrency
//
// A restored fold behaves like one that was never interrupted and does not raise its alerts again. If hosts of several
// shards are joined, the 1,000 alerts with the highest numbers stay. The section of no host holds the counts of
// comm="other" and of suppressed findings.
//
// One goroutine at a time calls Apply, Forget, Snapshot and Restore. Any number of goroutines may read meanwhile.
// Apply's goroutine calls OnAlert without holding the lock.
package anomaly
