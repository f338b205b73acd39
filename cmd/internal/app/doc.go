// Package app holds what every program of gputap needs around its work: signals, logs, exit status, /metrics and the
// connection to NATS.
//
// The first SIGINT or SIGTERM ends the context, and the program drains. The second ends the program at once. Data goes
// to standard output, everything else to standard error.
package app
