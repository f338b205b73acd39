// Package rule holds the rules of anomaly detection, one file each, and the state on which they decide.
//
// A Rule sees notable memory events at once: large allocations, failed ones, their frees, and the ends of processes. It
// sees everything else as counts of windows of ten seconds of the host's event time, and a Tick as often as the host is
// complete up to a later time. New lists the rules. A new rule is a file and a line there.
//
// # Promises
//
// Rules decide by event time and by the batches alone, so equal batches give equal alerts. Windows and thresholds are
// those of one process, so hosts do not influence each other.
//
// A window that lost events may have touched is not judged. A rule that is off costs nothing: the Set leaves out the
// rule and the kinds that it alone needs. A rule in mode observe raises alerts of severity info.
//
// The state of a process is limited to 20 KiB, beside its large allocations. All processes together keep a million of
// these; above that limit, memory is not attributed.
package rule
