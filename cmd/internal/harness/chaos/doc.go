// Command chaos runs a fleet of real processes on loopback and hurts it: three nats-server nodes with three replicas of
// everything, simulated hosts, three instances of each consumer. At random, and reproducibly by its seed, it kills and
// pauses consumers, simulators and nodes, cuts connections, holds a commit back until it is a zombie's, fills a node's disk
// and restarts the whole cluster. Then it lets the fleet come to rest and compares.
//
// The truth is what the simulators logged before they published it, counted here and by nothing of package consumer: a run fails
// when a batch of it is not in its shard's stream, or under another subject, out of order or changed; when an undisturbed
// reader counts other batches, events or losses; and when a committed state shows of any process other calls, launches, copies or
// bytes. It fails too when a committed state is not, byte for byte, what that reader makes of the stream; when a
// damaged batch is not among the dead letters once for each fold, or alerts are stored that nothing was published for, or none; when the bus stored a
// commit that is older than the one before it; when a program crashed, or ended otherwise than with status 0. And it fails
// when what it is for did not happen: a shard taken over, a commit of a zombie, a batch stored twice, one withheld, batches of every host.
// How long anything took is said and never judged.
package main
