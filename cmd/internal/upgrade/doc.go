// Command upgrade replaces a whole fleet of an older gputap by today's while programs run, as root, with real uprobes on
// the stub driver and a NATS cluster of three nodes: the bus is set up again, consumers are replaced one by one, the
// host's producer is ended and started anew. The fleet begins with a commit whose wire and states are of an older form.
//
// The truth is what the stub counted of each program. A run fails when a batch is missing; when a program that ran from
// begin to end under one producer, whichever, is not told completely, by the stream and by what the consumers saved; when
// one that ran across a change is called complete and is not; and when a saved state of the first shard is not, byte for byte,
// what one undisturbed reader of today's makes of its stream, or one had to be rebuilt.
package main
