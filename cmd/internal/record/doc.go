// Package record copies messages of the shards' streams into a recording, and describes recordings.
//
// Beginning. A new recording begins with the state of the fold leak before its first message: the live allocations of
// that moment. The state is the newest checkpoint that is not beyond the first message, and the messages between.
// Without such a checkpoint, or the permission to read it, the state is rebuilt from the stream. The recording says of
// each shard whether that covers all events before.
//
// Delivery. Each message is recorded once, in the order of its stream. A recorder that was killed continues behind the
// last message of each shard in the file; at most the last second is read again. It refuses the file of another bus,
// and one with another selection.
//
// Loss. Messages that retention removed before they were read are counted.
//
// Rotation. Each file of a rotated recording decodes alone. For that, the recorder keeps a fold leak for each shard and
// saves it at the beginning of each file. Reading a full file back instead would stop the recording for seconds.
// Without rotation, the fold runs only until the recording begins.
//
// Concurrency. One goroutine for each shard reads; the one that runs Run writes. Memory is bounded by the bytes of the
// pulls, one block, and at the beginning the checkpoints of leak; with rotation also by its states.
package record
