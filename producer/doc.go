// Package producer watches one host: it attaches probes to every CUDA driver library, reads the
// records, and publishes them as batches.
//
// One event takes four steps: discover.go and attach.go put the probe in, read.go takes the record
// from its ring and event.go translates it, batch.go adds it to the open batch of its kind, and
// publish.go sends the batch, through the spool.
//
// Order. Memory events are published in the order in which the calls returned, on one ring for the
// whole host. Launches and copies are in order per CPU only; their times order them. Batches of
// one kind are published in seq order, one in flight.
//
// Delivery. A batch is sent until it is acked, so it may be stored twice, never out of order; its
// seq, which has no holes within a run, tells a duplicate and a loss.
//
// Loss. Records that Linux could not write, and events in batches that the spool gave up while the
// bus was away, are counted by cause. Every batch carries the counters. Nothing else is lost; a
// probe never waits.
//
// Concurrency. One goroutine reads, translates and batches. One per kind publishes. One looks for
// libraries. The spool is what they share. Memory is bounded by the rings, one open batch per kind,
// the spool, and what is known of live processes.
package producer
