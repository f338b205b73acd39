// Package analysis answers questions about the memory of processes over a range of time: how much it was at every
// moment, when it was highest and what was live then, and what was never freed.
//
// A Journal collects the movements of memory that a leak.Tracker reports. Then each Process gives its changes in the
// order of their times, as often as they are needed.
//
// A second Journal may collect what PyTorch's caching allocator holds: TorchReceiver.
//
// # Order
//
// An allocation takes effect when its call returned, a free when its call was entered. Changes of equal time keep the
// order of their events. So the figures do not depend on how the records of two threads overlap.
//
// # Range
//
// Memory that was live before the range counts from the beginning of the range, as leak.Tracker.Live tells it: what was
// freed until then is unknown, so the time before has no figures. If a change of its process in the range is earlier,
// it counts from there, but not from before the last event of the host before the range. The end of a process changes
// nothing: memory that was live then stays live in every figure. A process that calls exec frees its memory.
//
// # Memory
//
// A Journal holds at most 1 Mi changes (32 MiB) and writes the others to a temporary file without a name, about 10
// bytes each. A figure about a process needs memory for its live allocations, not for its changes.
//
// # Concurrency
//
// One goroutine at a time uses a Journal and its processes.
package analysis
