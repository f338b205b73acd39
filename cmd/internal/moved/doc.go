// Package moved follows the hosts of a recording from shard to shard.
//
// When the number of shards changes, each host goes on in a stream of the next generation, and the streams before it
// are closed. A recording of that time has messages of a host in several shards. It has them in the order in which they
// were read, so those of the new shard may come before those of the closed one.
//
// Order. The messages of a host in a shard with a lower number come before those in a shard with a higher one, because
// numbers rise from one generation to the next. Groups lists the shards that may be read together.
//
// Lanes. A Lane is for one fold. It has the messages and the state of all hosts that went through the same shards. The
// hosts that stayed in their shard have a Lane for each shard, so a recording of one generation has a Lane per shard.
//
// State. A recording has the state of a host at the beginning of each shard. That of the first shard counts: the state
// of a later one also covers messages that the recording has.
package moved
