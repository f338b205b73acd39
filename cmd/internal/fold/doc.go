// Package fold runs a fold as a command of its own: read a shard, serve metrics, report. The producer
// does not import it, so it carries no consumer.
package fold
