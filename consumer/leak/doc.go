// Package leak answers who holds GPU memory and which memory was never freed. It folds memory batches into live
// allocations per process and GPU.
//
// Memory is live from its allocation until it is freed. It is unfreed if it was live when its process ended or
// replaced its image. Every process carries the evidence of its numbers: complete, gap (events of its lifetime were
// lost) or late (it ran before gputap attached).
//
// # Verdicts
//
// A process has a Verdict for each GPU: whether its live memory there grows without end. Package trend has the rules.
// Tick closes the windows of a host and judges. The verdict of an ended process stays as it was.
//
// Windows in which memory events may have been lost are excluded. Such a loss happened after the last time that a tick
// or a batch proved to be complete, and before the report of the loss. The time between two runs of the producer is
// excluded, too. A process that ran before gputap is at most growing while it frees memory that was never seen.
//
// Another fold may know the tensors in the memory (Config.Tensors). The graver state of the two is shown.
//
// # Alerts
//
// leak_growth fires while memory is suspect, and is critical if the GPU is full within an hour. unfreed_at_exit fires
// when a process freed most of its memory before it ended, and not the rest. Package alert has their life.
//
// # Order
//
// An allocation takes effect at its return, a free at its entry. The probes of two threads race, so records of one
// address may arrive in the wrong order. A free that entered before the live allocation at its address returned
// belongs to the previous life of that address (LateFrees). An allocation over a live address ends the previous life
// (ReallocOverLive). Bytes stay exact for every process, and for every workload while it has series:
//
//	allocated = freed + live + unfreed
//
// A process counts under the GPU and the name that were known when it last held nothing there.
//
// # Classes
//
// Pinned and registered memory belongs to the host. Physical memory of the virtual memory API lives while its handle
// has a reference or it has a mapping. Memory of a class that this version does not know counts as neither GPU nor
// host memory. Reserved addresses and multicast objects are not memory.
//
// Opened memory (IPC, imported handles, pool pointers, external memory) is counted where it was allocated. In the
// process that opened it, it is a holder without bytes, which names the exporting process of the same host if tokens
// identify it.
//
// # Ends
//
// Destroying or resetting a CUDA context, or releasing its last user, frees the device, managed, pinned, registered and
// array memory allocated in it, and closes what IPC opened in it. Memory allocated in a green context belongs to the
// primary context of its GPU, and the green context is one of its users. Pool, vmm and graph memory stays. Destroying a
// pool or a graph, or unloading a module, frees nothing. (All measured: driver 580, H200.)
//
// The number of users of a context is known only for processes with complete evidence; for others a release ends
// nothing. Memory whose context is unknown lives until it is freed or its process ends. Each call whose effect is
// therefore unknown is counted (UnknownContexts): live memory may then be too high.
//
// # Delivery and loss
//
// Batches arrive once each, in seq order per host and kind; package consumer guarantees that. A gap marks the processes
// that ran during it and changes nothing else. Lost memory records, missing memory batches and a restart of the
// producer are gaps. A new boot of a host ends the processes of its earlier boots with a gap. A reused PID ends the
// earlier process. Forget removes a host; its memory then counts neither as freed nor as unfreed. Only memory counted
// as comm="other" becomes unfreed.
//
// # Limits
//
//   - A live allocation needs less than 64 bytes of memory and at most 17 bytes of snapshot without any regularity.
//   - The cost of a report, a scrape, Top, TopRows and LargestOf depends on their own size, not on the number of live
//     allocations. The end of a context costs time for every allocation of its process, and so does the end of a
//     window while its memory grows.
//   - A process has verdicts for at most 64 GPUs, each with the largest 10 groups.
//   - A metric family has at most 2,000 series per shard. The rest is counted as comm="other". Hosts of one name in two
//     clusters share their series.
//   - A process has at most 255 contexts and 255 pools, a host at most 4,096 tokens: the newest.
//   - Counters never decrease. A workload whose processes have all ended may be evicted for a new one.
//
// # Snapshots and concurrency
//
// A restored fold behaves like one that was never interrupted. If its windows have another length, all trends start
// again. Sums over live allocations are not saved; Restore computes them. The section of no host holds the Counters,
// the workloads of comm="other" and the numbered calls.
//
// One goroutine at a time calls Apply, Tick, Lost, Forget, Snapshot and Restore. Any number of goroutines may read
// meanwhile. The goroutine of Apply, Tick or Forget calls OnVerdict and OnAlert without the lock. The state depends
// only on the batches, never on the wall clock.
package leak
