// Package cluster starts real processes for programs that load or disturb them: nats-server nodes on loopback and
// gputap's own commands. It reports what a process has used, may pin it to CPUs, and reads what streams hold. A process
// that it starts dies with the thread that started it.
package cluster
