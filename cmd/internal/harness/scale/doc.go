// Command scale measures how far gputap scales on one machine, with real processes: three nats-server nodes with three
// replicas of everything, simulated hosts, and consumer instances with a CPU each. It prints the tables of
// docs/measurements.
//
// The fill phase stores events as fast as possible. The backlog phase folds the stored events with some instances of a
// fold, and has no-op consumers read the same messages before and after, as a baseline. The live phase has the hosts
// publish at a fixed rate, in batches as small as producers make them, first without consumers and then with.
//
// The flag -host-events measures one real host instead, on one shard: a producer that reads a full ring until the last
// batch is acked, and in turn raw publishers of the same bytes on the same CPUs and to the same node; then a fold and a
// no-op consumer. The producer is stopped (SIGSTOP) while a program calls the stub driver, so that the ring fills. All
// connect to the node that leads the stream, where a raw publisher is fastest.
//
// CPU times are those of whole processes, over the span of the counters that they are divided by.
package main
