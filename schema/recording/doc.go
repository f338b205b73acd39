// Package recording is the file form of recorded messages: the messages of the shards' JetStream streams, unchanged,
// and the state of folds before the first of them. docs/recording-form.md specifies the bytes.
//
// Order. A file keeps the messages of a shard in the order of their sequences, each once. The order between shards is
// the one in which they were appended.
//
// Beginning. A file begins with sections of state, followed by the streams that it records. So a file decodes alone.
// This package does not look into the sections: a fold saved them.
//
// Crashes. A Writer writes whole blocks, each with one write. A kill loses the messages that were not flushed. Append
// removes an incomplete block at the end and continues behind the last message of each shard. A power failure may take
// more, from the end on; Close syncs the file.
//
// Damage. Checksums cover each byte of a block. A Reader skips a damaged block, reports its offset and its bytes, and
// continues with the next block.
//
// Selection. The summary of a block names its times, shards, hosts and kinds. A Reader does not read the contents of a
// block without a selected message.
//
// Limits. Every length in a file has a limit, so a Reader needs at most about 40 MiB beside the section at hand,
// whatever the file contains. A section has at most MaxSectionBytes.
//
// Concurrency. One goroutine uses a Writer or a Reader at a time. A file has one Writer, which holds its lock; any
// number of Readers may read it meanwhile.
package recording
