// Package bus knows the JetStream streams and buckets that gputap keeps on NATS: it plans, creates, changes and removes
// them, reads the topology, and tells where a stream ends.
//
// PlanStreams compares a bus with StreamOptions and lists the changes as steps; Plan.Apply makes them. A plan can be
// interrupted after any step: the bus keeps working, and the next plan contains the missing changes. When two callers
// ask for different numbers of shards at once, one succeeds and the other gets an error.
//
// Topology. A key in a bucket names the generations of shards. A change of the number of shards adds a generation with
// new shard numbers; the streams of the generation before are sealed. A sealed stream never changes, and it stays
// readable until RemoveGeneration. Shard numbers are never reused.
//
// Replicas. Direct gets may be answered by a replica that has not caught up. Where a stale answer could lose data, this
// package compares it with the leader's and returns an error.
package bus
