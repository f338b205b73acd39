// Package launch answers what runs: it counts the CUDA kernels, launch shapes and graphs that each process launches,
// and how long its threads take to launch again after a wait. It folds launch batches and sync batches.
//
// # Launches
//
// A launch is observed when it is submitted. Its result and its time on the GPU are not visible. If the program
// obtained a kernel handle unseen, the kernel has the name that the producer read from the program's memory (Read), or
// the name "unknown".
//
// A launch of an executable graph counts as one graph launch and as launches of the graph's kernels (FromGraphs).
// If gputap did not see how a graph was created, the graph may run more kernels than are known: its launches count as
// partial. Graph launches above 131,072 graph nodes in one batch also count as partial. Launches recorded into a
// graph did not run and are counted separately, as are host functions.
//
// # Rates
//
// Each kernel, shape and graph has its launches of the last complete minute of event time. Minutes are counted from the
// boot of the host. A minute is complete when a later event or heartbeat of the host came. The life of a process begins
// with its start, or with its first batch if it is late, and ends with its last event.
//
// The gaps come from the producer (schema.OpResume) with the features launch and sync. Their distribution has
// one bucket for each power of two of seconds.
//
// # Limits
//
// A process has at most Config.MaxKernels kernel names; further kernels count as "other". A kernel keeps its first 8
// launch shapes, a process its first 64 executable graphs and the gaps of its first 16 CUDA streams; the gaps of others
// are joined. A metric family has at most 2,000 series per shard; everything above counts as comm="other".
//
// The counters of metrics belong to workloads and outlive processes. A counter by kernel name never decreases, and no
// launch counts under two names. A kernel gets a series when it has enough launches (see byName) and keeps it. Its
// earlier launches stay counted as kernel="other".
//
// # Snapshots and concurrency
//
// A restored fold behaves like one that was never interrupted. The section of no host holds the counts by kernel name.
// One goroutine at a time calls Apply, Forget, Snapshot and Restore, and Apply in seq order per host and kind. Any
// number of goroutines may call Report and Collect meanwhile. The state depends only on the batches.
package launch
