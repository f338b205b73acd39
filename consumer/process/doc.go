// Package process keeps what every fold knows about processes: who they are, whether they ended,
// which calls they made, and one state of the fold's own each.
//
// A Table is used by the goroutine that applies batches; whoever else reads it holds the fold's
// lock. Its size is bounded: a fold says which silent processes may go, and beyond MaxProcesses a
// sixteenth of them goes: those that ended before those that run, the first seen first, and never one that the batch in
// hand names. Silence is measured by the clock of the silent host. Nothing here looks at the wall clock: a replay forgets what the live run
// forgot.
//
// A table is saved host by host, and restored from any of them. Processes keep their number in the order of
// first sight; of tables that are put together, those of one number are in order of cluster and host.
package process
