// Package job compares the ranks of each job by the summaries of package rank, and names the one that holds up the
// others.
//
// # The rule straggler
//
// Ranks of a job work in step: the others wait for a slow one. So the slow rank is the one that does not wait where the
// others wait: in calls that wait for the GPU, or in pauses between two classes of calls. A window of two seconds
// counts against the rank that waits least at such a place, if
//
//   - the others wait there for 5 % of the time or more, by their median,
//   - it waits for at most half of that, even if each wait whose end is not known yet belongs to that place, and
//   - it lies at least four deviations below them. A deviation follows from the mean distance of the others from their
//     median, now or before, whatever is larger. Each window halves what those before it say. A deviation is at least
//     two percent of the time.
//
// Three of four windows in a row against one rank raise the alert. It clears after three windows in a row in which the
// rank waits at least three quarters as long as the others. It also clears after a minute in which no window is
// against it. Windows in which hardly anybody waits say nothing. Where most ranks wait less together, their median
// falls, and nobody is named. None of 1,500 jobs with random noise had an alert in ten minutes. With two of three
// windows, seven of 100 had one; with three of five, one of 100.
//
// A training step may last longer than a window. So sums of eight windows are judged in the same way: steps of 4 to 10
// s take up to a minute. In jobs of steps of 15 s and more, an alert may clear and fire again.
//
// A window is judged when all ranks have sent it. Windows in which ranks are missing are not judged, and the report
// says so. Jobs of fewer than four ranks, or of an unknown number, are not judged either: three ranks are too few to
// tell which is the odd one.
//
// The rule cannot name a rank whose GPU alone is slow: its CPU waits as long as those of the others.
//
// # Clocks
//
// Windows of hosts compare by their wall time. Where the clock of a host is wrong by more than 20 s, the start of its
// process tells by how much, because the processes of a job start together. If a process started later than the
// others, and its clock is right, its windows are as new as those of the others. The decision stays while a host or its
// shard is late, such as after an outage of NATS. A clock that is wrong by less than 20 s
// delays the verdict by as much. Times in alerts are those of the host.
//
// A shard may be late by one minute. If it is later than that, its ranks are missing until it has caught up.
//
// # Delivery and limits
//
// Batches arrive once each, in seq order per job, host boot and run; those of several hosts in any order. A window of a
// rank that comes twice counts once. The state depends only on the batches. At most 4,096 jobs with 65,536 ranks, of
// which each job has 8,192 or fewer, are kept; the rest is counted. A job keeps thirty open windows.
//
// A restored fold behaves like one that was never interrupted and does not raise its alerts again.
//
// One goroutine at a time calls Apply, Forget, Snapshot and Restore. Any number of goroutines may read meanwhile. The
// goroutine of Apply or Forget calls OnAlert without holding the lock.
package job
