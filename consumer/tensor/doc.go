// Package tensor answers how much GPU memory PyTorch's tensors hold and how much its caching allocator keeps. It folds
// tensor batches, and the ends of processes in memory batches.
//
// Allocated is the bytes of the blocks that the allocator has handed out, Reserved the driver memory that it holds, and
// Cached the difference. Both come from the arguments of the last report of a GPU, so they equal
// torch.cuda.memory_stats even if earlier reports were not seen or lost. Peaks are those of the reports that were seen.
//
// Blocks come from pairing: a block lives from its block_alloc to the block_free at its address. If all reports were
// seen, the bytes of the blocks equal Allocated. A block_free without a block counts as UnmatchedFrees. A block_alloc
// at the address of a live block replaces it and counts as Replaced: the report between was lost.
//
// # Evidence
//
// The first report of a GPU shows whether blocks were handed out before: then the process is late, and its blocks are
// fewer than its tensors. Lost events and batches, and a restart of the producer, are a gap for all processes of the
// host that then run.
//
// # Verdicts
//
// The blocks of a process on one GPU have a verdict: whether they grow without end. So has the cache. Package trend has
// the rules. Tick closes the windows of a host and judges. Windows in which tensor events may have been lost are
// excluded. A process with blocks that were handed out before gputap attached is at most growing while it frees such
// blocks. The verdict of an ended process stays as it was. A verdict of growth names at most ten groups of blocks, by
// thread and size.
//
// # Order and ends
//
// The reports of one GPU of one process arrive in the order of the allocator. Memory batches and tensor batches arrive
// in any order: an exec ends the blocks that are older than it, whenever it arrives, and later reports of the image
// before are ignored. A process that ended keeps its last figures. Its blocks are dropped when all events of the host
// until its end have been seen. A new boot of a host ends the processes of its earlier boots.
//
// # Limits
//
//   - A live block needs less than 64 bytes of memory, a GPU of a process 3 KiB.
//   - The cost of a report or scrape depends on the number of processes, not on the number of blocks. The end of a
//     window while blocks grow costs time for every block of the GPU.
//   - A process has at most 64 GPUs; those above count as one of unknown ordinal. The names of its threads are kept for
//     1,024 threads.
//   - A metric family has at most 2,000 series. The rest is summed as comm="other".
//
// # Snapshots and concurrency
//
// A restored fold behaves like one that was never interrupted. Counts and sums over blocks are not saved; Restore
// computes them. One goroutine at a time calls Apply, Tick, Lost, Forget, Snapshot and Restore. Any number of
// goroutines may call Report and Collect meanwhile. The state depends only on the batches, never on the wall clock.
package tensor
