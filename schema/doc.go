// Package schema is the wire contract between producers and consumers: the form of a batch of observed CUDA calls in
// Go, in msgpack bytes and in NATS subjects. docs/wire.md specifies the bytes of form 1.0, and docs/events.md what
// events mean. The tables Columns, Dictionaries and Calls are the source of both.
//
// # Message
//
// One message is one batch: events of one host and one kind. A batch decodes alone: it contains every process, GPU,
// call and name that its events refer to. A writer leaves out empty dictionaries, and rare columns without a value
// above 0. It writes the other columns of a kind in the order of Columns, and takes the smallest value of a column as
// its base and the smallest width. A string is bytes as Linux reported them, mostly UTF-8.
//
// Consumers publish batches of kind rank, which are about the ranks of one job on one host. There, Host is the job and
// Origin the host, the boot is that of the host, and the run is the start of the first window of the batches.
//
// The comments of the Op constants explain each op and its use of the columns p, b and x. Ops from OpName on never
// travel. MemClass.OnGPU and MemClass.OnHost say where memory is counted.
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
// Decode rejects a message above a limit of docs/wire.md with ErrMalformed. It also rejects
//
//   - an unknown value that is nested deeper than 8;
//   - a number that is negative or too large for its field or column;
//   - a column whose data is not width × n bytes;
//   - an index beyond its dictionary, in columns and in rows.
//
// Decode compares counts with the bytes that are left before it allocates. A batch of a producer has at most 32,768
// events, far below the limit.
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
// turns a KTime into wall time with the offset of the batch. The producer measures the offset about once a minute, so
// it may change between batches, also backwards.
package schema
