// Package consumer runs a fold over one shard's stream: it fetches, decodes, proves what is
// missing, drops what it has seen, and applies the rest.
//
// Order. A fold gets the batches of one host, producer run and kind in seq order, from one
// goroutine. Between kinds and hosts the order is that of the stream.
//
// Delivery. Each batch is applied once: a producer may store one twice, and the second is dropped by
// its seq. After a reconnect or a restart of NATS the fetch goes on behind the last message dealt
// with. A stream that was deleted, or whose end was lost and written anew, is read again from its
// beginning; seq keeps what was applied before from being applied again.
//
// Loss. A hole in seq is a lost batch: counted, and told to a fold that wants to know. Batches from
// before the first one of a run are lost too, unless the stream had let go of its beginning
// (retention) or the reader was told to begin later (late_start): then they are counted as unseen.
// Losses that the producer counted travel in every batch and are kept per run.
//
// Shards. EnsureStreams sets a bus up and PlanStreams says how it would; ReadTopology and WatchTopology give
// the shards that it has. Shard numbers are never used again, and a closed shard is sealed: what it holds is
// all it will ever hold.
//
// Poison. What cannot be decoded, what claims to come from another host than its subject says, and
// what a fold refuses or panics over is counted, copied to the dead letters, and passed over:
// nothing stops a consumer but its context or a closed connection.
//
// Concurrency. One goroutine, that of the NATS subscription, decodes and applies. Stats, Lost,
// WaitFor and the scrape may be called from any. Memory is bounded by the bytes that one
// pull may have under way and by fixed numbers of producer runs and hosts remembered.
package consumer
