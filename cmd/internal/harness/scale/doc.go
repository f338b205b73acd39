// Command scale measures how far gputap scales on one machine, with real processes: three nats-server nodes that keep three
// copies of everything, simulated hosts, and instances of consumers with a CPU each. It prints tables for docs/scaling.md.
//
// Fill stores events as fast as that goes. Backlog folds what is stored, from nothing, with some instances of a fold, and
// has a reader that does nothing take the same messages. Live has the hosts make events at a fixed rate, in batches as
// small as producers make them, first without consumers and then with.
//
// With -host-events it measures one real host instead, on one shard: a producer that reads a full ring until the last of it is acked,
// raw publishers of the same bytes on the same CPUs and to the same node, in turn, and then a fold against a reader that does nothing. The ring
// is full because the producer stands still (SIGSTOP) while a program calls the stub driver. All are connected to the node that leads
// the stream, where a raw publisher is fastest.
//
// CPU times are of processes, and of the same span as the counters that they are divided by. What limits is not guessed:
// it is what has less than a tenth of its CPUs left.
package main
