// Package embedded runs a nats-server with JetStream inside the program. Connections use an in-process pipe. Only the
// command gputap contains it.
//
// With an address in the configuration the server also listens, for programs that have the password which it generates
// at each start. These programs can only read. An address that other machines can reach requires TLS.
//
// Durability: an acked message is in the page cache of Linux, and on disk within ten seconds.
package embedded
