// Package producer watches one host: it attaches probes to every CUDA driver library, reads the
// records, and publishes them as batches.
//
// One event takes four steps: discover.go and attach.go put the probe in, read.go takes the record
// from its ring and event.go translates it, batch.go adds it to the open batch of its kind, and
// publish.go sends the batch, through the spool.
//
// Order. Memory events are published in the order in which the calls returned, on one ring for the
// whole host. Launches and copies are in order per CPU only; their times order them. Batches of
// one kind are published in seq order, one in flight and one ready behind it.
//
// Delivery. A batch is sent until it is acked, so it may be stored twice, never out of order; its
// seq, which has no holes within a run, tells a duplicate and a loss. With an outbox what is not acked outlives
// the producer and Linux: package outbox says how.
//
// Place. A host's batches go to the shard that the bus's topology gives it, which is read before the first
// one is sent; until then they wait in the spool. When the shards change, batches that the old shard refuses
// go to the new one, as they are, and each kind moves between two of its batches: seq goes on in order.
//
// Loss. Records that Linux could not write, and events in batches that the spool or the outbox gave up while the
// bus was away, are counted by cause. Every batch carries the counters. Nothing else is lost; a
// probe never waits, nor does the reader for the disk.
//
// Discovery. The host's own libraries are attached before New returns, and again when their files are
// replaced. Any other file is attached once, whatever the number of processes, namespaces and overlays
// it is mapped through, a few milliseconds after its first mapping where Linux grants perf side-band
// records, else after the next scan; and detached when nobody has had it mapped for ten seconds.
//
// Lateness. A process is late if it had a driver library mapped before the last of its probes was in
// place, whether it made calls meanwhile or not: that nobody knows. A program of the host's own library
// that starts after New is never late; an exec makes a new image, which is judged anew.
//
// Choice. A filter is asked in Linux, once for each thread at its first call and again after an exec, so
// what does not pass costs little more than an empty probe and leaves no trace. A thread that changes its
// name, user or control group later stays with what was decided.
//
// Concurrency. One goroutine reads, translates and batches. One per kind publishes, one reads the topology, and one writes
// the outbox, if there is one. One looks for libraries, one reads the side-band, and one looks for control groups while
// processes are chosen by them.
// All this needs one thread of Go, and a second one while rings fill: Threads.
// The spool and what is known of users of libraries is shared. Memory is bounded by the rings, one open batch per kind,
// the spool, and what is known of live processes.
package producer
