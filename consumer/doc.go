// Package consumer runs folds over the streams of a fleet: it fetches, decodes, proves what is missing, drops what it
// has seen, applies the rest, and keeps the state where it outlives the process.
//
// A Consumer takes its part of all shards and shares them with the other instances of its fold; New is what a program
// calls that has a state to keep. A Reader reads one shard into a fold and keeps nothing. Programs without a state need
// neither: see schema.Reader.
//
// Order. A fold gets the batches of one host, producer run and kind in seq order, from one
// goroutine. Between kinds and hosts the order is that of the stream.
//
// Delivery. Each batch is applied once: a producer may store one twice, and the second is dropped by
// its seq. After a reconnect or a restart of NATS the fetch goes on behind the last message dealt
// with. A stream that was deleted, or whose end was lost and written anew, is read again from its
// beginning; seq keeps what was applied before from being applied again.
//
// State. A checkpoint is the state of a shard up to a message of its stream. It is committed as a whole: its parts are
// written first, then the manifest that names them replaces exactly the manifest that its writer knows. Whoever owns the
// shard anew has replaced it by then, so an instance that was thought dead can write nothing that counts. State and
// stream together make each batch count once, whatever dies when: the state after any crashes is, byte for byte, that of
// one undisturbed reader. What a fold does besides its state, such as publishing an alert, may happen again.
// A state that cannot be used (damaged, of a newer form) is said and counted, and rebuilt from what the stream still holds.
//
// Ownership. A shard belongs to the instance that holds its lease, a key that is forgotten when it is not renewed. Who
// should hold it follows from the names of the instances that are there, so that all come to the same answer; a better
// owner that stays gets the shard with a last checkpoint. Leases save work; that a shard is folded once is the
// manifest's doing.
//
// Loss. A hole in seq is a lost batch: counted, and told to a fold that wants to know. Batches from
// before the first one of a run are lost too, unless the stream had let go of its beginning or that is in shards of
// an earlier generation which were not folded (retention), or the reader was told to begin later (late_start): then
// they are counted as unseen.
// Losses that the producer counted travel in every batch and are kept per run.
//
// Shards. EnsureStreams sets a bus up and PlanStreams says how it would; ReadTopology gives
// the shards that it has. Shard numbers are never used again, and a closed shard is sealed: what it holds is
// all it will ever hold. The shards of a new generation take over the states of their hosts when those of the
// one before are folded to their end; until then they wait, and say so when that takes long. What a fold keeps of all hosts
// together stays behind. An instance shows no host twice meanwhile, but may not show one for the moments in which new shards are
// taken up one after the other; of two instances both may show a host until the closed shard is given up, or neither until the new one is
// taken up.
//
// Silence. A host that is silent for a day of the bus's time, while others are heard of, is let go of, with what a fold holds of it if
// the fold can forget. So is the one that is silent for longest when a shard has more than 10,000. So which hosts there are follows
// from the stream alone.
//
// Poison. What cannot be decoded, what claims to come from another host than its subject says, and
// what a fold refuses or panics over is counted, copied to the dead letters, and passed over:
// nothing stops a consumer but its context or a closed connection. While the bus is away the copy waits.
//
// Concurrency. One goroutine for each shard, that of the NATS subscription, decodes and applies. While a state is saved
// its shard waits; it goes on while the checkpoint is written. Stats, Lost, WaitFor, Each and the scrape may be called
// from any goroutine. Memory is bounded by the bytes that one pull may have under way, by fixed numbers of producer runs and
// hosts remembered, and by what the folds keep, of which a checkpoint under way is a copy.
package consumer
