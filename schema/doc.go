// Package schema is the wire contract between producers and consumers: what one batch of observed
// CUDA calls is in Go, in msgpack bytes and in NATS subjects.
//
// docs/wire.md is the same for readers in other languages, with an annotated message.
//
// # Message
//
// One message is one batch: events of one host and one kind. It decodes alone: every process, GPU,
// call and name that an event refers to is in the message. It is one msgpack map, its keys in this
// order; a writer leaves out empty dictionaries, and columns when there are no events.
//
//	v        uint            minor version of the form; the major is in the subject
//	k        string          kind: memory, launch, copy, sync, host
//	cl       string          cluster
//	h        string          host, the real name; the subject carries a token of it
//	boot     string          boot id of the host
//	run      uint            KTime at which the producer started
//	seq      uint            number of the batch in (boot, run, kind), from 1
//	n        uint            events
//	off      int             wall clock minus KTime, ns
//	t0, t1   uint            earliest and latest entry time; 0 without events
//	lost     map             cause → events lost since the producer started; causes of 0 left out
//	procs    [row]           pid, start (KTime), uid, comm, exe, container, late (0|1), user, its own pid (0: the
//	                         same), cgroup, pod, unit
//	threads  [row]           index into procs, tid, comm
//	gpus     [row]           UUID ("" while unknown), ordinal in the process's own numbering, inferred (0|1),
//	                         host only: model, PCI address
//	calls    [row]           symbol, op, class, direction: words, "" when they do not apply
//	funcs    [row]           mangled name ("" when the handle was obtained unseen), handle, read (0|1)
//	shapes   [row]           index into calls, into funcs, grid x y z, block x y z, dynamic shared bytes
//	graphs   [row]           index into funcs, partial (0|1), nodes: [index into funcs, count, index, count, …]
//	ctxs     [row]           handle, 0 or 1 + index into gpus
//	streams  [uint]          CUDA stream handles; 0: the default one, or none
//	libs     [row]           host only: path, inode, probes attached, of them single-stepped, absent symbols
//	                         [string], failed symbols [string]
//	cover    [row]           host only: index into procs, functions asked for, of them outside [string],
//	                         export tables
//	older    [uint]          memory only, and not in every batch: PIDs, see Batch.Older
//	linux    string          host only: release
//	prod     string          host only: version of the producer
//	cols     map             key → column
//
// A row is an array, its fields in that order. A string is bytes as Linux gave them, mostly UTF-8.
//
// # Columns
//
// A column is [base, width, data]: value i is base + the i-th little-endian number of width bytes in
// data. Width is 0, 1, 2, 4 or 8; width 0 has no data, and all values are base. Values are unsigned,
// and a writer takes the least value as base and the least width.
//
//	key  kinds                      unit     meaning
//	t    memory launch copy sync    ns       KTime at entry
//	d    memory copy sync           ns       from entry to return
//	th   memory launch copy sync    index    into threads
//	c    memory copy sync           index    into calls
//	g    memory launch copy sync    index    0: unknown, else 1 + index into gpus
//	r    memory copy sync           CUresult 0 is success
//	p    memory sync                -        address or handle, as the op says; sync: CUDA event or context
//	b    memory copy                bytes    amount
//	x    memory sync                -        as the op says, else the CUDA stream of a stream-ordered call
//	dst  copy                       -        destination address
//	src  copy                       -        source address; 0 of sets
//	s    launch                     index    into shapes
//	q    launch copy sync           index    into streams
//	cx   memory                     index    current context; 0: unknown, else 1 + index into ctxs
//	po   memory                     -        pool that an allocation names; 0: the GPU's own, or none
//	v    sync                       ns       elapsed: GPU time between two CUDA events
//
// Columns of a kind are written in the order of kindColumns; readers find them by key.
//
// # Ops and classes
//
// Op says for each op what happened and what p, b and x are; ops from name on never travel. A call that
// was recorded into a graph keeps its symbol, class and direction and has the op record: it did not run
// and is no launch, copy, set or allocation. A graph_launch runs every node of its graph count times; of
// a partial graph, more than those. MemClass.OnGPU and OnHost say what counts where.
//
// # Evolution
//
// A reader passes over keys, columns, fields at the end of a row, words and kinds that it does not
// know, and reads those that are missing as zero: an unknown kind is KindNone, an unknown op
// OpUnknown, an unknown class or direction "", an unknown cause of loss is counted as other. Of equal
// keys the last holds. Fields are only added at the end of rows; keys and words are only added and
// never change their meaning. Index columns and the dictionaries that they point into never go. What
// cannot be read so is a new major version with subjects of its own. Messages of every released form
// stay in testdata.
//
// # Limits
//
// Decode refuses, with ErrMalformed, a message above MaxMessageBytes, events above MaxEvents, more
// than 65,536 rows in a dictionary, more than 131,072 entries in all lists of all rows (Builder.Graph
// cuts its nodes), strings above 4,096 bytes (Encode cuts them), unknown values nested deeper than 8, a
// number that is negative or too large for its field, a column whose data is not width × n bytes, and an
// index beyond its dictionary: of columns, and of threads, shapes, graphs, ctxs and cover. Counts are
// compared with the bytes that are left before anything is allocated. A producer closes batches at 4,096 events, far below.
//
// # Order, identity, loss
//
// Seq counts from 1 in each (boot, run, kind) of a host, without holes: a consumer drops a batch whose
// seq is not above the last, and a seq that is left out is a lost batch. Events of a batch, and of
// neighbouring batches, need not be in the order of time: they ran on many CPUs. Who needs that order
// goes by t.
//
// A process is (cluster, host, boot, pid, start) for ever; an exec keeps that identity. A thread is an
// attribute. A handle or address means something only within its process.
//
// Lost counters only grow within a run; the difference between two batches is what was lost between
// them. What cannot be observed at all (a late process) is marked and not counted.
//
// # Clock
//
// KTime is nanoseconds since the boot of one host, and includes suspend. KTimes of two boots do not
// compare; off turns one into wall time (Header.Wall). off is taken anew about once a minute, so it
// may change from batch to batch, also backwards.
//
// # Order rules of memory events
//
// Calls run on many threads, and addresses are used again. An allocation takes effect at its return,
// t + d; a free at its entry, t. A free that was entered before the live allocation at its address
// returned belongs to an earlier life of the address. An allocation over a live address ends the
// earlier life. A free counts only with result 0, and a free of 0 is none. A failed allocation is never
// live. exec and exit end everything that the process held.
//
// context_destroy, context_reset and the context_release of the last user end what was allocated in that
// context of class device, managed, pinned, registered and array; pool, vmm and graph memory survives
// (measured on a GPU). pool_destroy frees nothing: memory from the pool lives until it is freed.
//
// Physical memory of a create has a reference for the create and each retain, and one less for each
// release; it goes with its last reference and last mapping, whichever is later. An open is a holder and
// never bytes: the memory counts where it was made; the holder goes with the close, free or release of
// its p. A free or release ends what is live at p, whatever class its own call names.
package schema
