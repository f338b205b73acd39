// Package app is what every command of gputap has around its work: signals, logs, exit status,
// /metrics, and the connection to NATS.
//
// The first SIGINT or SIGTERM ends the context, which drains; the second ends the program at once.
// Data goes to standard output, everything else to standard error.
package app
