// Package replay reads a recording and gives its messages, on time, to folds in this process or to a bus.
//
// Order. The messages of a shard keep their order. At a speed above 0, the messages of all shards come in the order in
// which NATS stored them.
//
// Time. At a speed above 0, a message is due at (stored − first stored) / speed after the start, less the pauses above
// MaxIdle. A late message does not delay the next one. At speed 0, every message is due at once.
//
// Folds. The folds are those of gputap run. Each takes the messages of a recording as it would take them from a stream,
// with their sequences and times. So its state equals, byte for byte, that of a fold that began with the first recorded
// message. The messages do not pass through NATS, which would give them new sequences and times. The embedded server
// only answers the questions of gputap get and gputap top.
//
// Bus. A Publisher publishes each message unchanged to the shard that its host has on the other bus, one at a time for
// each shard and kind, until it is acked. It refuses a bus that holds batches of the same host, boot and run.
//
// Damage. Damaged parts of a recording are reported once and passed over. Folds count the messages in them as missing.
//
// Concurrency. Play reads and paces in the caller's goroutine. Folds apply a group of messages at the same time as each
// other, and Play continues when all of them are done.
package replay
