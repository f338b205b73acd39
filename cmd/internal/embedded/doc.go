// Package embedded runs a nats-server with JetStream inside the program, without a port: the
// connection is a pipe. Only the command gputap carries it.
//
// Durability: a message is with Linux when it is acked, and on the disk within ten seconds.
package embedded
