// Package shard shares the shards of a bus among the instances of a fold, and keeps the state of each shard so that it
// outlives a process.
//
// Ownership. A shard is owned by the instance that holds its lease, a key that expires when it is not renewed. Each
// instance computes from the names of the members which of them should own which shard (rendezvous hashing), so all
// come to the same result. When another instance has been the preferred owner for a while, the owner commits a last
// checkpoint and releases the shard. state.go names the states of a shard.
//
// Checkpoints. A checkpoint is the state of a shard up to one message of its stream. Its parts are stored first; then
// the manifest that names them replaces exactly the manifest that the writer knows (expected sequence). An owner first
// claims the shard with a manifest of its own. So an instance that was thought dead can commit nothing: its next
// manifest is refused ("checkpoint fenced"). Leases only avoid double work. After any crashes, checkpoint and stream
// together give, byte for byte, the state of one reader that was never disturbed.
//
// Unusable states. A damaged checkpoint is logged and counted, and the state is rebuilt from the stream. A checkpoint
// of a newer program is logged, counted, and left to newer instances; it is rebuilt only if none comes.
//
// Generations. When the number of shards changes, the shards of the new generation inherit the states of their hosts
// once the shards before are closed and folded to their end. Until then they wait. The part of a state that covers all
// hosts together is not inherited. A closed shard that was folded to its end, or taken over, is never owned again.
//
// Concurrency. Group.Run uses one goroutine for membership, and for each owned shard one for its lease and one for its
// checkpoints, beside those of its Reader. Owned, Counts and NotReadyReason may be called from any goroutine.
package shard
