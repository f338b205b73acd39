// Package inspect has the commands that ask running consumers: gputap top, get, describe, status and tail.
//
// They ask the consumers of a fleet over NATS, or a gputap run of this host over its socket. They never join a consumer
// group. A shard that does not answer is named, and the exit status is 4.
package inspect
