// Command scale measures how far gputap scales on one machine, with real processes: three nats-server nodes that keep three
// copies of everything, simulated hosts, and instances of consumers with a CPU each. It prints tables for docs/scaling.md.
//
// Fill stores events as fast as that goes. Backlog folds what is stored, from nothing, with some instances of a fold, and
// has a reader that does nothing take the same messages. Live has the hosts make events at a fixed rate, in batches as
// small as producers make them, first without consumers and then with.
//
// CPU times are of processes, and of the same span as the counters that they are divided by. What limits is not guessed:
// it is what has less than a tenth of its CPUs left.
package main
