// Package answer holds the questions about a fleet: the rows that one shard takes for each, and the answer that Fleet
// makes of the rows of all shards.
//
// A Part takes its rows between two batches. Fleet asks every shard of the newest generation, and all folds at the same
// time. An answer names the shards that did not answer and the folds that no instance runs; neither is an error. The
// JSON keys of answers are a contract: docs/answers.md. The file of a question has both ends, so they change together.
package answer
