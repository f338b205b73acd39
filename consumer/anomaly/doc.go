// Package anomaly finds unusual behaviour in the events of a fleet and raises alerts. Package rule holds the rules.
// This package is the fold that hands them the content of batches: notable memory events one by one, launches and
// copies as counts of windows, and the losses of each host.
//
// # Order, delivery and limits
//
// Batches arrive once each, in seq order per host and kind. Rules that compare windows need ticks: without them they
// raise nothing. An alert fires and clears under one id, and names the process, the numbers and the batches that
// contain the finding. Findings that raise no alert are counted by rule and reason.
//
// Lost events never make an alert of windows wrong: windows that they may have touched are not judged. An allocation
// size is not judged on a history with holes.
//
// The state depends only on the batches and ticks, never on the wall clock. Floating-point results on amd64 and arm64
// may differ in the last bit, and so may the verdict on a value exactly at a threshold. Hosts, processes and alerts are
// bounded; packages rule, process and alert say how.
//
// # Snapshots and concurrency
//
// A restored fold behaves like one that was never interrupted and does not raise its alerts again. The section of no
// host holds the counts of comm="other" and of suppressed findings.
//
// One goroutine at a time calls Apply, Tick, Lost, Forget, Snapshot and Restore. Any number of goroutines may read
// meanwhile. The goroutine of Apply, Tick or Forget calls OnAlert without holding the lock.
package anomaly
