// Package pairing finds what only the order of a host's launches, copies and waits shows: how long a thread took to
// launch again after a wait, and when asynchronous copies had ended.
//
// Order. Each group of CPUs has a ring of its own, and rings are read one after the other, so the records of a thread
// that migrated are read out of order. Pairs therefore keeps notes of a round of reading, and Finish sorts them by
// time. By then every ring has been read past the time that Finish is given, so no earlier record of the same thread
// follows. Launches without a wait or copy between them share a note: a launch costs two comparisons.
//
// Gaps. A gap begins when a successful wait of a thread ends, and ends with the next launch of a kernel or graph by
// the same thread. If the thread waits again before, only the last wait counts.
//
// Copies. A copy ends with the first successful wait for its CUDA stream or CUDA context that was entered after the
// copy returned. The end is not reported if one of these came between them in the CUDA stream: a launch of a kernel, a
// copy of another direction or host memory, or a synchronous copy between host and GPU. The default CUDA streams of an
// unknown context are not followed.
//
// Loss. When records were lost, or more notes came than the bounds allow, pairs that may be wrong are left out. Unknown
// counts the waits whose gap was left out.
//
// Memory is bounded: notes of all threads and CUDA streams together, notes and copies of each, CUDA streams of a
// process. One goroutine uses a Pairs and everything that belongs to it.
package pairing
