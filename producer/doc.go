// Package producer watches one host: it reads the records of traced CUDA calls and publishes them to NATS as batches.
//
// One event takes four steps: read.go reads its record from a ring; translate.go lets process.Table learn from the
// record and turns both into an event; batch.go adds the event to the open batch of its kind; publish.go publishes the
// batch, through the spool. No step calls back.
//
// Derived figures belong to consumers, with two exceptions: the producer pairs launches, copies and waits (package
// pairing), and says which copies use pinned host memory. Batches of different kinds have no order between each other,
// so no consumer can tell. The events of pairs join the batches of copies and waits at the end of a round of reading.
//
// The packages below it do the rest: attach keeps probes on every driver library, which library finds and reads;
// process knows the traced processes; pairing finds gaps and ends of copies; filter chooses processes; preflight checks
// what this Linux allows; procfs reads /proc.
//
// Order. Memory events are published in the order in which the calls returned, on one ring for the whole host. Launches
// and copies are in order per CPU only; their times order them. Batches of one kind are published in order of seq, one
// in flight and one queued behind it.
//
// Delivery. A batch is published until it is acked, so NATS may store it twice, never out of order. Its seq, which has
// no holes within a run, shows duplicates and losses. An outbox keeps batches that are not acked through a crash of the
// producer or of Linux.
//
// Completeness. A heartbeat says up to which time and batch each kind is complete (schema.End). All rings have been
// read since that time. This assumes that Linux writes the record of a call within 250 ms of its return. Heartbeats
// come every ten seconds. While a rank of a job runs they come every two, because windows of ranks close at heartbeats:
// that is 2 % more messages of a host that trains.
//
// Routing. The topology in NATS says which shard a host's batches go to. The router reads it before the first batch is
// published; until then batches stay in the spool. After a reshard the old shard rejects batches; they go to the new
// one unchanged. Each kind moves between two of its batches, so its seq stays in order.
//
// Loss. Records that Linux could not write, and events in batches that the spool or the outbox evicted while NATS was
// unreachable, are counted by cause. Every batch carries the counters. Nothing else is lost. A probe never waits; the
// reader never waits for the disk.
//
// Concurrency. One goroutine reads, translates and batches. One per kind publishes, one reads the topology, and two
// write and sync the outbox, if there is one. One attaches libraries, one reads the side-band, and one follows control
// groups, if the filter has any. One thread of Go is enough for all, and a second one while rings fill: AdjustThreads.
// Memory is bounded by the rings, one open batch per kind, the spool, and the table of live processes.
package producer
