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
// Delivery. Each batch is applied once. A producer may store a batch twice; the second is dropped by its seq. After a
// reconnect or a restart of NATS the fetch continues after the last message read. A stream that was recreated, or whose
// end was lost and written again, is read from its beginning; seq identifies the batches that were applied before.
//
// State. A checkpoint is the state of a shard up to one message of its stream. It is committed as a whole, and only by
// the instance that claimed the shard last (see package shard). Checkpoint and stream together make each batch count
// once, whatever crashes: the state is, byte for byte, that of one undisturbed reader. Other effects of a fold, such
// as publishing an alert, may happen again. An unusable state (damaged, or of a newer program) is logged and counted,
// and rebuilt from what the stream still holds.
//
// Ownership. A shard belongs to the instance that holds its lease. See package shard.
//
// Loss. A gap in seq is a lost batch: it is counted, and reported to a fold that has the method Lost. Batches from
// before the first one of a producer run are lost too, with two exceptions in which they count as unseen. Their reason
// is retention if the beginning of the stream was removed or lies in shards of an earlier generation that were not
// folded. It is late_start if the options ask for a later start. Losses that the producer counted travel in every
// batch and are kept for each run.
//
// Shards. Shard numbers are never reused, and a closed shard never changes. The shards of a new generation inherit the
// states of their hosts when those of the generation before are folded to their end. Until then they wait, and a
// warning says so when that takes long. The part of a state that covers all hosts together is not inherited. An
// instance shows no host twice; a host may disappear for moments while new shards are acquired one after the other.
// Two instances may both show a host until the closed shard is released, or neither until the new one is acquired.
//
// Silence. A host that is silent for a day of NATS's time, while other hosts are not, is forgotten, also by the fold if
// it has the method Forget. So is the host that was silent for longest when a shard has more than 10,000. Therefore the
// set of hosts follows from the stream alone.
//
// Poison. A message is useless if it cannot be decoded or names another host than its subject. So is a batch that the
// fold refuses or panics over. It is counted, copied to the dead letters, and skipped. Nothing but its context or a
// closed connection stops a consumer. While NATS is unreachable, the copy waits.
//
// Concurrency. One goroutine for each shard, that of the NATS subscription, decodes and applies. Folding waits while a
// state is copied, and goes on while the checkpoint is written. Stats, Lost, WaitFor, Each and the scrape may be
// called from any goroutine. Memory is bounded by the bytes that one pull may have in flight, and by fixed numbers of
// remembered producer runs and hosts. The states of the folds come on top; a checkpoint in progress is a copy of one.
package consumer
