// Package schema is the wire contract between producers and consumers: the form of a batch of observed CUDA calls in
// Go, in msgpack bytes and in NATS subjects. This text specifies form 1.0. docs/wire.md shows an annotated message,
// and docs/events.md explains each op.
//
// # Message
//
// One message is one batch: events of one host and one kind. A batch decodes alone: it contains every process, GPU,
// call and name that its events refer to. It is one msgpack map. A writer uses this order of keys, and leaves out empty
// dictionaries, and cols when there are no events.
//
//	v        uint      minor version of the form: 0
//	k        string    kind: memory, launch, copy, sync, host
//	cl       string    cluster
//	h        string    host: the real name; the subject carries a token of it
//	boot     string    boot id of the host
//	run      uint      KTime at which the producer started
//	seq      uint      number of the batch in (boot, run, kind), from 1
//	n        uint      number of events
//	off      int       wall clock minus KTime, ns
//	t0, t1   uint      earliest and latest entry time; 0 without events
//	lost     map       cause → events lost since the producer started; causes with 0 are left out
//	procs, threads, gpus, calls, funcs, shapes, graphs, ctxs, streams, libs, cover
//	                   dictionaries: see Dictionaries
//	linux    string    host only: release of Linux
//	prod     string    host only: version of the producer
//	older    [uint]    some memory batches: PIDs, see Batch.Older
//	cols     map       column key → column: see Columns
//
// The subject carries the major version, 1. A writer always writes the key v, and writes it first. A reader
// never rejects a message because of v.
//
// A dictionary is an array of rows, and a row is an array of fields in the order of Dictionaries. Indices into a
// dictionary count from 0. A string is bytes as Linux reported them, mostly UTF-8.
//
// # Columns
//
// A column is [base, width, data]: value i is base plus the i-th little-endian number of width bytes in data. Width is
// 0, 1, 2, 4 or 8. Width 0 has no data, and every value is base. Values are unsigned. A writer takes the smallest value
// as base and the smallest width. Columns of a kind are written in the order of Columns; readers find them by key.
//
// # Ops and classes
//
// The comments of the Op constants explain each op and its use of the columns p, b and x. Ops from OpName on never
// travel. A call that was recorded into a graph keeps its symbol, class and direction and has the op record: it did not
// run, so it does not count as a launch, copy, set or allocation. A graph_launch runs every node of its graph as often
// as the node's count says; a partial graph runs more. MemClass.OnGPU and MemClass.OnHost say where memory is counted.
//
// # Evolution
//
// The form grows within a major version. Keys, columns, words and kinds are only added, and never change their meaning.
// Fields are only added at the end of rows. Index columns and the dictionaries that they point into are never removed.
// A reader therefore
//
//   - ignores keys, columns, fields at the end of a row, words and kinds that it does not know. An unknown kind reads
//     as KindNone, an unknown op as OpUnknown, an unknown class or direction as "", and an unknown cause of loss
//     counts as LossOther;
//   - reads an absent key, column or field as zero;
//   - takes the last of equal keys.
//
// A change that such a reader would misread is a new major version with subjects of its own. Messages of every released
// form stay in testdata.
//
// # Limits
//
// Decode rejects with ErrMalformed
//
//   - a message above MaxMessageBytes, or with more than MaxEvents events;
//   - a dictionary above 65,536 rows, or more than 131,072 entries in all lists of all rows (Builder.Graph truncates
//     its nodes to this limit);
//   - a string above 4,096 bytes (Encode truncates them);
//   - an unknown value that is nested deeper than 8;
//   - a number that is negative or too large for its field or column;
//   - a column whose data is not width × n bytes;
//   - an index beyond its dictionary, in columns and in rows.
//
// Counts are compared with the bytes that are left before anything is allocated. A producer closes batches at 4,096
// events, far below the limits.
//
// # Order, identity, loss
//
// Seq counts from 1 in each (boot, run, kind) of a host, without gaps. A consumer drops a batch whose seq is not above
// the last. A missing seq is a lost batch. Events of a batch, and of neighbouring batches, may be out of time order,
// because they ran on many CPUs. A consumer that needs that order sorts by t.
//
// (cluster, host, boot, pid, start) identifies a process for ever; an exec keeps it. A thread is an attribute. A handle
// or address means something only within its process.
//
// Loss counters only grow within a run. The difference between two batches is the loss between them. Calls that
// cannot be observed, for example those before the probes were attached, are not counted: Process.Late marks them.
//
// # Clock
//
// KTime is nanoseconds since the boot of one host, suspend included. KTimes of two boots do not compare. Header.Wall
// turns a KTime into wall time with off. The producer measures off about once a minute, so it may change between
// batches, also backwards.
//
// # Order rules of memory events
//
// Calls run on many threads, and addresses are reused. An allocation takes effect at its return, t + d; a free at its
// entry, t. A free that was entered before the live allocation at its address returned belongs to an earlier
// allocation. An allocation over a live address ends the earlier one. A free counts only with result 0, and a free of 0
// is a no-op. A failed allocation is never live. exec and exit end everything that the process held.
//
// context_destroy, context_reset, and the context_release of the last user end the memory of that context of class
// device, managed, pinned, registered and array. Memory of class pool, vmm and graph survives (measured on a GPU).
// pool_destroy frees nothing: memory from the pool lives until it is freed.
//
// Physical memory has one reference for its create and for each retain, and one less for each release. It ends with its
// last reference and last mapping, whichever is later. An open is a holder without bytes: the memory is counted where it
// was made. The holder ends with the close, free or release of its p. A free or release ends the live memory at p,
// whatever class its own call names.
package schema
