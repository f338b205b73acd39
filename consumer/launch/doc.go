// Package launch counts what each process launches: kernels by name and by launch shape, and graphs.
//
// A launch is observed where it is submitted; its result and its time on the GPU are not seen. A
// kernel whose handle was obtained unseen has the name that was found in the program's memory (Read),
// or is named "unknown".
//
// The launch of an executable graph counts as a graph launch, and as launches of the kernels that the
// graph runs (FromGraphs says how many). A graph that was made unseen, or in ways that are not seen,
// runs more than is known: its launches are counted as partial, and so are those above 131,072 kernels of graphs in one batch. What was recorded into a graph did
// not run and is counted apart, and so are functions of the host.
//
// State is bounded: a process holds Config.MaxKernels kernel names and counts the launches of
// others together, under "other"; a kernel holds its first 8 launch shapes. Metrics hold at most
// 2,000 series a family and count what comes later under comm="other".
//
// Counters of metrics belong to workloads (host, GPU, container, comm) and outlive processes. A
// counter by kernel name never goes back and no launch is counted under two names: a kernel gets a
// series of its own when it has earned it (see byName), keeps it for ever, and what it launched
// before stays counted under kernel="other".
//
// Snapshot and Restore carry all of that over: a fold that was restored goes on as if nothing had been.
// A host's section holds its processes and workloads, that of no host the counts by kernel name.
//
// Apply, Snapshot and Restore are called by one goroutine at a time, Apply in seq order per host and kind; Report and Collect may
// run beside it. Nothing looks at the wall clock: the same batches give the same counts.
package launch
