// Package nsys converts the SQLite export of an Nsight Systems report into a recording, so that every offline command
// reads one form. docs/nsight.md lists what becomes of each table.
//
// Order. The recording has the events in the order of their times, and of the rows for equal times, whatever the order
// of the rows in the file.
//
// Identity. A process has the pid of the target, a GPU its UUID if the export maps it to the device, else only the
// ordinal of the device. KTime is nanoseconds since the start of the session.
//
// Versions. Tables and columns are looked up by name, and numbers of kinds and operations by their labels, so that
// exports of other versions are read as far as they go. Convert refuses a file without a table that it needs, and the
// Summary lists the optional ones that are absent.
//
// Loss. A row with unusable values is skipped and counted. Frees without an allocation, allocations over live memory
// and frees of another size are converted and counted.
//
// Memory. It is bounded by the live allocations, the processes and the threads, and not by the rows. SQLite sorts rows
// in temporary files. Convert never writes to the export.
//
// Concurrency. Calls of Convert share nothing.
package nsys
