// Package process keeps what every fold knows about a process: its identity, whether it ended, which calls it made, and
// the fold's own state. A Series keeps the counts of a metric family by workload; they outlive processes. A Grid sums
// the events of one batch.
//
// A Table belongs to the goroutine that applies batches; other readers hold the fold's lock. A fold decides which
// silent processes are forgotten. A Table with more than 100,000 processes forgets a sixteenth of its processes: ended
// ones first, then running ones, each in order of first sight, but never one that the current batch names. Silence is
// measured by the clock of the silent host. The wall clock plays no part, so a replay forgets the same processes as the
// live run.
//
// A Table is saved and restored host by host. Processes keep their number in the order of first sight. When hosts of
// several tables are joined, processes with equal numbers are ordered by cluster and host.
package process
