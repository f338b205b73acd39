// Package embedded runs a nats-server with JetStream inside the program, without a port: the
// connection is a pipe. Only the command gputap carries it.
//
// It may listen besides, for programs of other people: to those who have a password that it makes at each
// start, and to read only. What other machines reach has TLS, or it does not start.
//
// Durability: a message is with Linux when it is acked, and on the disk within ten seconds.
package embedded
