// Package consumer runs folds over the streams of a bus: it fetches, decodes, proves which batches are missing, drops
// duplicates, applies the rest, and saves the state so that it outlives the process.
//
// A program with a state to keep uses New. A Reader reads one shard into a fold and saves nothing. A program without a
// state needs neither: see schema.Reader. Package shard owns shards and their checkpoints; package bus knows the
// streams.
//
// Order. A fold gets the batches of one host, producer run and kind in seq order, from one goroutine. Between kinds and
// hosts the order is that of the stream.
//
// Delivery. Each batch is applied once: a second copy in the stream is dropped by its seq. After a reconnect or a
// restart of NATS the fetch continues after the last message read. A stream that was recreated, or whose end was lost
// and written again, is read from its beginning.
//
// State. Checkpoint and stream together make each batch count once, whatever crashes: the state is, byte for byte, that
// of one undisturbed reader. Other effects of a fold, such as publishing an alert, may happen again.
//
// Loss. A gap in seq is a lost batch: it is counted, and reported to a fold that has the method Lost. Batches from
// before the first one of a producer run are lost too. They are not counted if retention removed the beginning of the
// stream, if it lies in shards of an earlier generation that were not folded, or if the options ask for a later start.
// Losses that the producer counted are in every batch and are kept for each run.
//
// Shards. An instance shows no host twice; a host may disappear for moments while new shards are acquired one after the
// other. Two instances may both show a host until a closed shard is released, or neither until the new one is acquired.
//
// Silence. A host that is silent for a day of NATS's time, while other hosts are not, is forgotten. So is the host that
// was silent for longest when a shard has more than 10,000. The set of hosts follows from the stream alone.
//
// Poison. A message is useless if it cannot be decoded or names another host than its subject. So is a batch that the
// fold refuses or panics over. It is counted, copied to the dead letters, and skipped. While NATS is unreachable, the
// copy waits.
//
// Concurrency. One goroutine for each shard, that of the NATS subscription, decodes and applies. Folding waits while a
// state is copied, and goes on while the checkpoint is written. Stats, Lost, WaitFor, Each and the scrape may be
// called from any goroutine. Memory is bounded: the states of the folds, a copy of one of them, the bytes that one pull
// may have in flight, and fixed numbers of remembered producer runs and hosts.
package consumer
