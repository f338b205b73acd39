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
// Physical memory of the virtual memory API lives while a reference to its handle or a mapping of
// it is left. Pinned memory is the host's and is kept apart from the GPU's. Memory of a class that
// this version does not know is counted with neither.
//
// Delivery. Batches come in seq order per host and kind, each once: package consumer sees to that.
// A gap marks the processes that ran during it and changes nothing else. Loss of launch and copy
// records does not touch memory, and batches that the producer's spool gave up are seen, exactly, as
// missing seq; neither is a gap here. A restarted producer is a gap: nobody looked meanwhile. A new
// boot of a host ends the processes of its earlier boots, and a reused PID ends its earlier owner.
//
// Bounds. A live allocation costs less than 64 bytes. A report, a scrape and Top cost what they
// show, not what is live. Each metric family holds at most 2,000 series; what exceeds them is
// folded into comm="other". Counters never go backwards; a workload all of whose processes ended may
// leave the page when a new one needs its place.
//
// Concurrency. One goroutine at a time calls Apply and Lost; any number may read meanwhile. The
// state depends on the batches alone: the same bytes give the same state, whatever the wall clock.
package leak
