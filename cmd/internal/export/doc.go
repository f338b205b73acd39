// Package export is gputap export: the events of a recording in the forms of other programs.
//
// Each form is one file of this package. A form gets every event of the range once, in the order of the recording:
// the events of one host and kind are in the order of their batches, and hosts and kinds mix. Events that a producer
// published twice are left out.
//
// Loss. Batches that are missing, events that the producer lost, malformed messages and damaged parts of the recording
// are counted and end the command with status 4, and so are allocations in the place of live memory, the free of which
// memory-viz has to make up. The output has everything else.
//
// Files. A file appears under its name when it is complete; an error leaves the earlier file.
//
// Memory. jsonl, csv and parquet need memory for one batch. perfetto and pprof also need it for what is live, and
// memory-viz for all events of one process. perfetto reads the recording three times: for the time of the first event,
// for the alerts, and for the events.
package export
