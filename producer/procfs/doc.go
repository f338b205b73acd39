// Package procfs reads what Linux shows of processes in /proc: start times, control groups, users and memory.
//
// Each call reads anew; only Accounts caches. A process may end at any time: a missing file is an ordinary answer.
// A pid alone may belong to a later process; OpenProcess compares the start time of a thread to exclude that.
//
// Functions may be called from any goroutine; an Accounts may be used by one goroutine at a time.
package procfs
