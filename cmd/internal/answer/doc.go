// Package answer answers questions about a fleet: a shard returns rows, and Fleet merges the rows of all shards.
//
// A Part takes its rows between two batches. Fleet asks every shard of the newest generation, and all folds at the same
// time. An answer names the shards without a reply and the folds that no instance runs; neither is an error. The
// JSON keys of answers are a contract: docs/answers.md. The file of a question has both ends, so they change together.
package answer
