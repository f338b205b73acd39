// Package rank sums up what each rank of a job did in windows of two seconds: its calls, and where it paused between
// calls. The ranks of a job lie on several shards, so the summaries go to the shard of the job, where package job
// compares the ranks.
//
// # Windows
//
// Windows are aligned in the wall time of the host, which is its boot time plus an offset. The offset stays the same
// until it is wrong by 100 ms; then the open windows are dropped. A window closes at the first tick behind the end of
// the next one, with the events known then: the heartbeats of the hosts come at different moments, and their windows
// must compare. Windows that may have lost events have no summary.
//
// A pause is 1 ms or more in which no thread of the process made a call or was in one. Events of several kinds arrive
// in separate batches, so a process keeps the first and the last class of calls of each millisecond until the tick. A
// time in it has 125 ns. A launch has no duration. Questions to the driver whether the GPU is done are no calls here:
// a thread of PyTorch asks all the time. A pause that lasts beyond the end of the next window has no end. Neither has
// one before a call that had not returned at the tick.
//
// # Delivery and limits
//
// A summary is one batch for each host, job and tick. The same batches give the same summaries, byte by byte, also
// after a restart: readers drop those that they have. The run of the batches is the start of the first window, so a
// fold without a saved state numbers them anew. Publish is called without the lock, by the goroutine of Tick, and may
// block.
//
// A process without a job and a rank costs nothing. A process ends with its exit, or after ten minutes without a call.
// The fold keeps at most 2,048 processes, each with at most 128 KiB; it counts those that it ignores.
//
// One goroutine at a time calls Apply, Tick, Lost, Forget, Snapshot and Restore. Any number may collect metrics.
package rank
