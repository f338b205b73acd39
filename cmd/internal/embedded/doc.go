// Package embedded runs a nats-server with JetStream inside the program. Connections use an in-process pipe. Only the
// command gputap contains it.
//
// If the configuration has an address, the server also listens there. It generates a password at each start; programs
// that have it can only read. An address that other machines can reach requires TLS.
//
// Durability: an acked message is in the page cache of Linux, and on disk within ten seconds.
package embedded
