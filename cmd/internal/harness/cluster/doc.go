// Package cluster starts real processes for programs that load or disturb them: nats-server nodes on loopback and
// gputap's own commands. It measures the usage of a process, pins it to CPUs, and reads streams. A process dies with
// the thread that started it.
package cluster
