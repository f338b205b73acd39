// Package leak folds memory batches into who holds how much GPU memory, and what was never freed.
//
// Words: memory is live while it is allocated and not freed; it is unfreed when its process ended,
// or replaced its image, while it was live. The package flags no suspects. Whether live memory is
// leaked is for a person to say, and every process carries the evidence of its numbers: complete,
// gap (events of its lifetime were lost) or late (it ran before gputap was attached).
//
// Order. An allocation takes effect at its return, a free at its entry. Uprobes of two threads
// race: a free that entered before the live allocation at its address returned is the free of that
// address's previous life (LateFrees), and an allocation over a live address says that the previous
// life ended unseen (ReallocOverLive). Lives whose end was never seen are the difference of the two.
// Bytes stay exact in both cases: for every process, and for every workload while it is on the page,
//
//	allocated = freed + live + unfreed
//
// A process counts on the GPU, and under the name, that was known when it last held nothing there.
//
// Classes. Pinned and registered memory is the host's and is kept apart from the GPU's. Physical
// memory of the virtual memory API lives while a reference to its handle (create, retain, release) or
// a mapping of it is left. Memory of a class that this version does not know is counted with neither.
// What is opened (IPC, imported handles, pool pointers and external memory) is counted where it was
// made: here it is a holder without bytes, which names the process of the host that gave it out
// when tokens tell. Reserved addresses and multicast objects are no memory; that a multicast object
// keeps what is bound to it is not followed.
//
// Ends. A CUDA context takes along the device, managed, pinned, registered and array memory that was
// allocated in it: when it is destroyed or reset, or has its last user released. Memory allocated in a
// green context is its GPU's primary one's, of which the green context is a user. Pool, vmm and graph
// memory stays, and nothing is freed by destroying a pool or a graph or by unloading a module (all
// measured: driver 580, H200). What IPC opened is closed by the end of its context. How many users a context has is known only of processes whose
// evidence is complete: a release ends nothing of others. Memory whose context was not told lives
// until it is freed or its process ends. Whenever that leaves open what a call ended, it is counted
// (UnknownContexts), and live memory may be too high.
//
// What the driver told a program of a GPU (cuMemGetInfo) or a pool is kept, the latest of each, and
// set against what was live then.
//
// Delivery. Batches come in seq order per host and kind, each once: package consumer sees to that.
// A gap marks the processes that ran during it and changes nothing else. Loss of launch and copy
// records does not touch memory, and batches that the producer's spool gave up are seen, exactly, as
// missing seq; neither is a gap here. A restarted producer is a gap: nobody looked meanwhile. A new
// boot of a host ends the processes of its earlier boots, with a gap: what they did last nobody knows. A reused PID ends its
// earlier owner. A host that is forgotten goes with its processes and workloads, whose memory is then neither freed nor unfreed;
// of those that count as other it is unfreed.
//
// Bounds. A live allocation costs less than 64 bytes. A report, a scrape and Top cost what they
// show, not what is live. Each metric family holds at most 2,000 series of a shard; what exceeds them is
// folded into comm="other", also where the hosts of several shards come together. Hosts of one name in two clusters share their series. A process has at most 255 contexts and 255 pools told apart, a host its
// newest 4,096 tokens. The end of a context costs what its process holds. Counters never go backwards; a workload all of whose processes ended may
// leave the page when a new one needs its place.
//
// Snapshots. Snapshot and Restore carry everything over that Apply, Lost, Report, Top or a scrape will ever
// look at; a fold that was restored goes on as if nothing had been. What live allocations add up to is not
// written but added up again. A host's section holds its boots, processes, allocations and workloads; that of no
// host the Counters, what counts as other, and the calls that have a number. A live allocation takes
// 17 bytes when nothing about it is regular.
//
// Concurrency. One goroutine at a time calls Apply, Lost, Snapshot and Restore; any number may read meanwhile. The
// state depends on the batches alone: the same bytes give the same state, whatever the wall clock.
package leak
